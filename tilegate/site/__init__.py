"""The dashboard: a history as static pages that work from any folder, offline. docs/site.md describes it."""
