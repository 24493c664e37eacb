"""The one place of the version; packaging and the hello read it here."""

__version__ = "0.1.0"
