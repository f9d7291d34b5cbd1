"""Pages in Markdown and HTML."""

from tfbnood._core.tables import as_html, as_markdown
from tfbnood.reproduce.page import Section, page_as_html, page_as_markdown


def test_pages_escape_what_they_show(tmp_path):
    section = Section("a < b", ["x & y"], [("p | q", [["<i>", "a|b"], ["1", "2"]])], "none.png")
    page = page_as_html("t", [section], tmp_path)
    assert '<h2 id="s0">a &lt; b</h2>' in page
    assert "<th>&lt;i&gt;</th>" in page
    assert "<img" not in page  # The file is not there.
    assert "a\\|b" in page_as_markdown("t", [section])
    assert (
        as_html([["x"], ["&"]]) == "<table>\n<tr><th>x</th></tr>\n<tr><td>&amp;</td></tr>\n</table>"
    )
    assert as_markdown([["a", "b"], ["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
    sentence = as_markdown([["a", "b"], ["1", "a sentence that is longer than any number"]])
    assert sentence.splitlines()[1] == "| --- | --- |"
