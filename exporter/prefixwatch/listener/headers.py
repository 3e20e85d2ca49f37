"""The headers of every answer."""

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Server": "prefixwatch",
    "X-Content-Type-Options": "nosniff",
}

PLAIN_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy of all but the page, which has its own: nothing in it may load, run or be framed."""
