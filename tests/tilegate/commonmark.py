"""What of a Markdown text a reader sees as text: the rest is code, in which nothing acts."""

import re


def outside_code(markdown):
    """Drop fenced blocks and put CODE for code spans, as CommonMark finds them: what is left can act."""
    kept, fence = [], None
    for line in markdown.split("\n"):
        opening = re.match(r" {0,3}(`{3,})", line)
        if fence is None and opening:
            fence = opening[1]
        elif fence is not None:
            if re.fullmatch(rf" {{0,3}}`{{{len(fence)},}}\s*", line):
                fence = None
        else:
            kept.append(line)
    assert fence is None, "a block is left open"
    return "\n".join(re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "CODE", line) for line in kept)
