"""The process that loads one side of a comparison, and does what it is asked, one request at a time.

    python -m tilegate.worker REQUESTS_FD REPLIES_FD

Requests and replies are JSON, one a line, over two inherited pipes; the suite's own output goes to a log file. A request
is {"op": name, "timeout": seconds, "ticket": text, ...arguments}, a reply {"ticket": the same, "ok": result} or
{"ticket": the same, "failure": {"kind", "message"}}.

This package imports nothing heavy and nothing of the code under test at import time.
"""
