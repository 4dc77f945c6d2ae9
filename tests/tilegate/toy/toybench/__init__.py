"""The toy's suite."""

from tilegate.protocol import register

register()
