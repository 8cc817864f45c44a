"""HTML as tests compare it: without the white space that only indents."""

import re

_TAG = re.compile(r"<[^<>]*>")


def compact(html: str) -> str:
    """Return a page with each tag on one line and no blanks at the edges of elements.

    >>> compact('<p\\n  class="sub"\\n>\\n  one <b>two</b>\\n</p>\\n<i></i>')
    '<p class="sub">one <b>two</b></p><i></i>'
    """
    html = _TAG.sub(lambda tag: re.sub(r"\s+(?=/?>)", "", re.sub(r"\s+", " ", tag[0])), html)
    html = re.sub(r"\s+", " ", html)
    html = re.sub(r"> <", "><", html)
    html = re.sub(r"(<\w[^<>]*>) ", r"\1", html)
    return re.sub(r" (</)", r"\1", html)
