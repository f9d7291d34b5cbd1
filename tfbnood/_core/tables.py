"""Tables of text as Markdown, HTML and aligned columns; the first line is the header."""

import html

__all__ = ["Table", "aligned", "as_html", "as_markdown"]

Table = list[list[str]]


# Longer cells are sentences: on the site they wrap, as right-aligned numbers never do.
_MOST_CHARACTERS_OF_A_NUMBER = 40


def as_markdown(table: Table) -> str:
    """A pipe table; the first column and columns of sentences are left-aligned, the others right-aligned."""
    rule = ["---"]
    for index in range(1, len(table[0])):
        longest = max((len(line[index]) for line in table[1:]), default=0)
        rule.append("---" if longest > _MOST_CHARACTERS_OF_A_NUMBER else "---:")
    lines = ([cell.replace("|", "\\|") for cell in line] for line in (table[0], rule, *table[1:]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_html(table: Table) -> str:
    """A `<table>`, with everything in it escaped."""

    def row(tag: str, cells: list[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    lines = [row("th", table[0]), *(row("td", line) for line in table[1:])]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def aligned(table: Table) -> str:
    """Columns for a terminal: the first left-aligned, the others right-aligned; further cells follow unpadded."""
    count = len(table[0])
    widths = [max(len(line[index]) for line in table) for index in range(count)]
    lines = []
    for first, *others in table:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=False)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]) + "".join(others[count - 1 :]))
    return "\n".join(lines)
