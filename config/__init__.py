"""The configuration file as frozen models, the catalogues it names, and the process settings."""
