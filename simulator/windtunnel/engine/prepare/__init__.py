"""A scenario made ready to run: devices, jobs, and what each job costs on each device."""
