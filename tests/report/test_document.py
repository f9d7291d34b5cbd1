"""One file: its policy, what may stand in it, and how it is written."""

import base64
import hashlib
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbnood.report import document, write_page
from tfbnood.report.document import data_block, escape


def policy(page):
    (content,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    return dict(rule.split(" ", 1) for rule in content.split("; "))


def sha256(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("scripted", [False, True])
def test_the_policy_names_this_style_and_this_script_and_nothing_else(scripted):
    page = document("Title", "<h1>Hello</h1>", scripted=scripted)
    rules = policy(page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == scripted
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["style-src"] == sha256(style)
    assert rules["script-src"] == (sha256(scripts[0]) if scripted else "'none'")
    assert rules["img-src"] == "data:"


def test_a_page_names_no_address_that_could_be_loaded():
    page = document("Title", "", scripted=True)
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {"http://www.w3.org/2000/svg"}  # a name
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert "@import" not in style
    assert "url(" not in style


@settings(deadline=None, derandomize=True)  # The machine may be busy.
@given(st.text())
def test_any_text_in_a_data_block_comes_back(text):
    block = data_block("names", [text])
    (inside,) = re.findall(r">(.*)</script>", block, re.DOTALL)
    assert json.loads(inside) == [text]
    assert not set("<>&") & set(inside)


@settings(deadline=None, derandomize=True)  # The machine may be busy.
@given(st.text())
def test_escaped_text_holds_no_markup(text):
    assert not set("<>\"'") & set(escape(text))


def test_names_that_are_not_utf_8_can_be_written(tmp_path):
    write_page(tmp_path / "report.html", document("caf\udce9", escape("caf\udce9.png")))
    assert "caf\\udce9.png" in (tmp_path / "report.html").read_text("utf-8")


def test_an_infinite_number_is_refused_and_not_written_as_a_broken_page():
    with pytest.raises(ValueError, match="not JSON compliant"):
        data_block("numbers", [float("inf")])


def test_a_page_that_cannot_be_encoded_leaves_the_old_one(tmp_path):
    write_page(tmp_path / "report.html", "old")
    with pytest.raises(UnicodeEncodeError):
        write_page(tmp_path / "report.html", "new \udce9")
    assert (tmp_path / "report.html").read_text("utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_pages_do_not_load_tensorflow():
    import subprocess
    import sys

    code = (
        "import sys, tfbnood.report; print('tensorflow' in sys.modules, 'sklearn' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
