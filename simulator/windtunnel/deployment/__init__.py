"""The configuration that deploys the fleet of a scenario: commands of serving engines, from what was simulated."""
