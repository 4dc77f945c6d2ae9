"""`tilegate site`: the history as a dashboard of static pages."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import sys
import time
import webbrowser
from datetime import UTC
from pathlib import Path

from tilegate import files, invocation
from tilegate.commands.history_common import FOLDER, name_broken
from tilegate.history.store import Store
from tilegate.history.view import view
from tilegate.measuring import trees
from tilegate.site.build import Built, build

EXIT_DONE = 0
_OUT = "site"

_DESCRIPTION = """\
Write the history as static pages: what is slower than the last release, since which commit, and whether it still is. They
work from any folder and offline; a web server is not needed (docs/site.md).

examples:
  tilegate site build                         .tilegate/history -> .tilegate/site
  tilegate site build --out public --url https://example.org/perf/
  tilegate site open                          build what changed, then open it in the browser
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate site` to the command line."""
    parser = subparsers.add_parser(
        "site",
        help="the history as a dashboard of static pages",
        description=_DESCRIPTION,
        epilog="exit code: 0 done, 2 usage error",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="site_command", metavar="COMMAND", required=True)
    for name, summary in (
        ("build", "Write the pages; what did not change since the last build is left alone."),
        ("open", "Build, then open the dashboard in the browser."),
    ):
        made = commands.add_parser(name, help=summary, description=summary)
        made.add_argument("--store", type=Path, metavar="DIR", help=f"the history (default: .tilegate/{FOLDER})")
        made.add_argument("--out", type=Path, metavar="DIR", help=f"the site (default: .tilegate/{_OUT})")
        made.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: this one)")
        made.add_argument("--title", metavar="TEXT", help="heads every page (default: the repository's folder)")
        made.add_argument("--url", type=_address, metavar="URL", help="where it will be published, for feed.xml")
        made.add_argument(
            "--web", type=_address, metavar="URL",
            help="the repository on the web, such as https://github.com/OWNER/NAME: commits then link to it",
        )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate site`; return the exit code. Raises UsageError."""
    built = _build(args)
    if args.site_command == "open" and not webbrowser.open(built.index.resolve().as_uri()):
        print(f"tilegate: no browser could be started; open {built.index} in one", file=sys.stderr)
    return EXIT_DONE


def _build(args: argparse.Namespace) -> Built:
    begun = time.monotonic()
    store, out = args.store, args.out
    repository = trees.open_repository(args.repo.resolve()) if store is None or out is None else None
    if repository is not None:
        store = store or invocation.default_folder(repository, FOLDER)
        out = out or invocation.default_folder(repository, _OUT)
    folder = store.resolve()
    read = files.cache_folder("history") / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}.json"
    history = view(*Store(folder).read(read))
    name_broken(history)
    title = args.title or args.repo.resolve().name
    built = build(
        history,
        out,
        title=title,
        url=args.url or "",
        repository=args.web or "",
        today=datetime.datetime.now(UTC).date(),
    )
    print(
        f"{built.index}: {built.commits} commits, {built.cases} cases, {built.entries} regressions ever; "
        f"{built.written} files written in {time.monotonic() - begun:.1f} s"
    )
    return built


def _address(text: str) -> str:
    if not text.startswith(("https://", "http://")):
        raise argparse.ArgumentTypeError(f"{text!r} is no address such as https://example.org/perf/")
    return text if text.endswith("/") else f"{text}/"
