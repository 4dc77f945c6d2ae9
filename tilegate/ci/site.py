"""Makes asv's site self-contained: its page loads eleven files from content networks and shows nothing without them.

The same libraries come from the npm registry instead, pinned with their hashes by .github/site/package-lock.json. Where
asv states a hash for a file and the package has the very same one, it is checked, too.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tilegate import files
from tilegate.files import UsageError

_FOLDER = "vendor"
_TAG = re.compile(r"<(?:script|link)\b[^>]*?\b(?:src|href)=\"(https?://[^\"]+)\"[^>]*>")
_INTEGRITY = re.compile(r"integrity=\"(sha256|sha512)-([^\"]+)\"")
_LOADS = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"(?:https?:)?//[^\"]*\"")


@dataclass(frozen=True)
class Asset:
    """A file that the page loads.

    Attributes:
        url: how it begins in asv's page, up to the version.
        file: its place among the installed packages.
        same: the package has exactly the file that asv means, so its hash must fit.
    """

    url: str
    file: str
    same: bool = True


_FLOT = "https://cdnjs.cloudflare.com/ajax/libs/flot/"
ASSETS = (
    Asset("https://code.jquery.com/jquery-3.3.1.min.js", "jquery/dist/jquery.min.js"),
    # The package has flot 0.8.3 as it was written; the content network minifies it.
    Asset(f"{_FLOT}0.8.3/jquery.flot.min.js", "flot/jquery.flot.js", same=False),
    Asset(f"{_FLOT}0.8.3/jquery.flot.time.min.js", "flot/jquery.flot.time.js", same=False),
    Asset(f"{_FLOT}0.8.3/jquery.flot.selection.min.js", "flot/jquery.flot.selection.js", same=False),
    Asset(f"{_FLOT}0.8.3/jquery.flot.categories.min.js", "flot/jquery.flot.categories.js", same=False),
    Asset(
        "https://cdn.jsdelivr.net/npm/flot-orderbars@1.0.0/js/jquery.flot.orderBars.js",
        "flot-orderbars/js/jquery.flot.orderBars.js",
    ),
    # 1.0.1 is not in the registry; 1.1.3 has the same interface.
    Asset(
        "https://cdnjs.cloudflare.com/ajax/libs/stupidtable/1.0.1/stupidtable.min.js",
        "stupid-table-plugin/stupidtable.min.js",
        same=False,
    ),
    Asset("https://cdnjs.cloudflare.com/ajax/libs/blueimp-md5/2.19.0/js/md5.min.js", "blueimp-md5/js/md5.min.js"),
    Asset(
        "https://cdn.jsdelivr.net/npm/bootstrap@3.1.1/dist/js/bootstrap.min.js", "bootstrap/dist/js/bootstrap.min.js"
    ),
    Asset(
        "https://cdn.jsdelivr.net/npm/bootstrap@3.1.1/dist/css/bootstrap.min.css",
        "bootstrap/dist/css/bootstrap.min.css",
    ),
)
_FONTS = "bootstrap/dist/fonts"  # which the style sheet names, as ../fonts


def vendor(html: Path, assets: Path) -> None:
    """Copy what the site's page loads from elsewhere into the site, and make the page load it from there.

    Args:
        html: the site's folder, with index.html.
        assets: the folder of installed packages, node_modules.

    Raises:
        UsageError: the page loads something that is not known here, or a file is missing or another one.
    """
    page = html / "index.html"
    text = page.read_text(encoding="utf-8")
    for found in list(_TAG.finditer(text)):
        asset = next((asset for asset in ASSETS if asset.url == found[1]), None)
        if asset is None:
            raise UsageError(
                f"asv's page loads {found[1]}, which is not among the site's own files; add it to {__name__}"
            )
        source = assets / asset.file
        if not source.is_file():
            raise UsageError(f"{source} is missing; `npm ci --prefix .github/site --ignore-scripts` installs it")
        content = source.read_bytes()
        if asset.same:
            _check(found[0], content, asset)
        target = html / _FOLDER / asset.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        text = text.replace(found[0], _local(found[0], found[1], f"{_FOLDER}/{asset.file}"))
    if (assets / _FONTS).is_dir():
        shutil.copytree(assets / _FONTS, html / _FOLDER / _FONTS, dirs_exist_ok=True)
    files.write_text(page, text)
    if left := _LOADS.search(text):
        raise UsageError(f"the site would still load something from elsewhere: {left[0][:200]}")


def _local(tag: str, url: str, place: str) -> str:
    """Return the tag with the file's own place, and without what only makes sense for another host."""
    tag = tag.replace(url, place)
    return re.sub(r"\s+(?:integrity|crossorigin|referrerpolicy)=\"[^\"]*\"", "", tag)


def _check(tag: str, content: bytes, asset: Asset) -> None:
    stated = _INTEGRITY.search(tag)
    if stated is None:
        return
    actual = base64.b64encode(hashlib.new(stated[1], content).digest()).decode()
    if actual != stated[2]:
        raise UsageError(f"{asset.file} is not the file that asv's page names ({asset.url})")
