"""The suite."""

from tilegate.protocol import register

register()
