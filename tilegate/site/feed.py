"""The Atom feed of regressions: an entry for each, which is updated when its range or its state changes."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from tilegate.history.inbox import Entry
from tilegate.history.view import History
from tilegate.showing.markup import change, plain
from tilegate.site.cases import seconds_of

_ATOM = "http://www.w3.org/2005/Atom"  # RFC 4287
_MOST = 100


def atom(history: History, entries: Sequence[Entry], *, title: str, url: str) -> str:
    """Return feed.xml.

    Args:
        history: that the entries are of.
        entries: of the inbox; the newest come first in the feed.
        title: of the feed.
        url: where the site will be, with a slash at its end; "" for links relative to the feed.
    """
    ET.register_namespace("", _ATOM)
    feed = ET.Element(f"{{{_ATOM}}}feed")
    newest = history.commits[-1] if history.commits else None
    _add(feed, "title", f"{title}: regressions")
    _add(feed, "id", url or f"urn:tilegate:{newest.sha if newest else 'empty'}")
    _add(feed, "updated", _date(newest.date if newest else ""))
    ET.SubElement(feed, f"{{{_ATOM}}}link", rel="alternate", href=f"{url}index.html")
    for entry in sorted(entries, key=lambda entry: -entry.first_bad)[:_MOST]:
        _entry(feed, history, entry, url)
    return ET.tostring(feed, encoding="unicode", xml_declaration=True) + "\n"


def _entry(feed: ET.Element, history: History, entry: Entry, url: str) -> None:
    bad, good = history.commits[entry.first_bad], history.commits[entry.last_good]
    worst = entry.worst
    element = ET.SubElement(feed, f"{{{_ATOM}}}entry")
    kernel = plain(entry.benchmark.rpartition(".")[2])
    _add(element, "title", f"{kernel}: {change(math.exp(worst.estimate))}, {_state(entry)}")
    _add(element, "id", f"urn:tilegate:regression:{entry.id}")
    decided = [e["created"] for e in history.events if e["what"] == "triage" and e["about"] == entry.id]
    _add(element, "updated", _date(max([bad.date, *decided])))
    _add(element, "published", _date(bad.date))
    author = ET.SubElement(element, f"{{{_ATOM}}}author")
    _add(author, "name", plain(bad.author) or "unknown")
    ET.SubElement(element, f"{{{_ATOM}}}link", rel="alternate", href=f"{url}index.html#/inbox/{entry.id}")
    since = "at" if entry.first_bad - entry.last_good == 1 else "at or before"
    lines = [
        f"{change(math.exp(worst.estimate))} ({change(math.exp(worst.low))} … {change(math.exp(worst.high))}) {since} "
        f"{bad.sha[:12]}, {plain(bad.subject)}; last good: {good.sha[:12]}."
    ]
    lines += [f"{plain(each.case)}: {change(math.exp(each.contrast.estimate))}" for each in entry.affected[:20]]
    _add(element, "content", "\n".join(lines)).set("type", "text")


def _state(entry: Entry) -> str:
    return "recovered" if entry.recovered else "open" if entry.open else entry.state


def _add(parent: ET.Element, tag: str, text: str) -> ET.Element:
    element = ET.SubElement(parent, f"{{{_ATOM}}}{tag}")
    element.text = text
    return element


def _date(text: str) -> str:
    """RFC 3339 wants a time and a zone; what a store holds may be anything."""
    seconds = seconds_of(text) or 0
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
