"""The HTML report as a reader sees it."""

from __future__ import annotations

from html.parser import HTMLParser

from planner.rendering.report import report_html


class Page(HTMLParser):
    """What a page shows and what it refers to."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        if self.tags[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page(plan):
    return Page(report_html(plan))
