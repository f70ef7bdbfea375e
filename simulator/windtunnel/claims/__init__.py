"""The figures of the founding documents compared with the models and with physical bounds."""
