"""HTML reports as readers and browsers see them."""

from __future__ import annotations

from html.parser import HTMLParser

from gpuplan.planner.render.reports.plan import plan_report

VOID = {"meta", "br"}


class Page(HTMLParser):
    """What a page shows and what it refers to; what is not well formed is a fault."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.words, self.faults = [], [], [], []
        self._open = []
        self.feed(html)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag in self._open]

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if self._open[-1:] != [tag]:
            self.faults.append(f"</{tag}> within {self._open[-3:]}")
        else:
            self._open.pop()

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    def values(self, name):
        """Values of an attribute, wherever it is."""
        return [value for key, value in self.attributes if key == name]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page(plan):
    return Page(plan_report(plan))
