"""`tilegate history triage`, `import`, `alias` and `pack`: what people add to a history."""

from __future__ import annotations

import argparse
import datetime
from datetime import UTC

from tilegate.commands.history_common import EXIT_DONE, author, now
from tilegate.files import UsageError
from tilegate.history import importing, inbox, update
from tilegate.history.records import Event
from tilegate.history.store import Store


def triage(args: argparse.Namespace, store: Store) -> int:
    """Carry out `triage`; return the exit code. Raises UsageError."""
    history = update.load(store)
    known = {entry.id: entry for entry in inbox.entries(history)}
    if args.id not in known:
        raise UsageError(
            f"there is no entry {args.id!r}; `tilegate history regressions` lists {', '.join(known) or 'none'}"
        )
    if not any((args.state, args.owner, args.note, args.expires)):
        raise UsageError("nothing to change: give --state, --owner, --note or --expires")
    if args.expires:
        try:
            datetime.date.fromisoformat(args.expires)
        except ValueError:
            raise UsageError(f"--expires {args.expires!r} is no date such as 2026-12-31") from None
    if args.state == "accepted" and not (args.expires or known[args.id].expires):
        raise UsageError("an acceptance needs a last day: --expires YYYY-MM-DD")
    event = Event(
        kind="event", what="triage", about=args.id, created=now(), author=author(), marks=list(known[args.id].marks)
    )
    for key in ("state", "owner", "note", "expires"):
        if getattr(args, key):
            event[key] = getattr(args, key)
    store.add(event)
    print(
        f"{args.id}: {', '.join(f'{key} {event[key]}' for key in ('state', 'owner', 'note', 'expires') if key in event)}"
    )
    return EXIT_DONE


def import_(args: argparse.Namespace, store: Store) -> int:
    """Carry out `import`; return the exit code. Raises UsageError."""
    records = [
        (path, list(importing.from_file(path))) for path in args.files if path.exists() or not args.skip_missing
    ]  # all are read before any is kept
    if not records:
        print("nothing is there to import")
        return EXIT_DONE
    store.folder.mkdir(parents=True, exist_ok=True)
    for path, found in records:
        new = sum(store.add(record) for record in found)
        kinds = [record["kind"] for record in found]
        print(
            f"{path}: {kinds.count('comparison')} comparisons, {kinds.count('observation')} observations; {new} records are new"
        )
    return EXIT_DONE


def alias(args: argparse.Namespace, store: Store) -> int:
    """Carry out `alias`; return the exit code. Raises UsageError."""
    history = update.load(store)
    for name in (args.old, args.new):
        if name not in history.cases:
            raise UsageError(f"no case is called {name!r}; `tilegate history show` lists what there is")
    store.add(Event(kind="event", what="alias", about=args.old, to=args.new, created=now(), author=author()))
    print(f"{args.old} continues as {args.new}")
    return EXIT_DONE


def pack(args: argparse.Namespace, store: Store) -> int:
    """Carry out `pack`; return the exit code. Raises UsageError."""
    first = datetime.datetime.now(UTC).date().replace(day=1)
    month = args.until or (first - datetime.timedelta(days=1)).strftime("%Y-%m")
    try:
        datetime.date.fromisoformat(f"{month}-01")
    except ValueError:
        raise UsageError(f"--until {month!r} is no month such as 2026-10") from None
    before = store.bytes()
    packed = store.pack("9999-12", label=f"{first:%Y-%m}") if args.all else store.pack(month)
    print(f"{packed} records packed: {before:,} -> {store.bytes():,} bytes")
    return EXIT_DONE
