"""The asv suite: which work counts. Run it with `asv run`, gate it with `tilegate gate`, test it with pytest."""

from tilegate.protocol import register

register()
