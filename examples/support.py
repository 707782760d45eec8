"""Answers support mails: sorts them, requests an approval for each refund, collects the answers.

python examples/support.py                  runs until all refunds wait for an approval
flowengine approvals list                   lists these approvals
flowengine approve --flow support --all     from any terminal: continues, and prints the answers
python examples/support.py --yaml           the same flow as a file
"""

import re
import sys
from typing import Literal, TypedDict

from flowengine import Engine, Flow, cel


class Mail(TypedDict):
    """An incoming mail."""

    sender: str
    text: str


class Sorted(TypedDict):
    """The subject of a mail."""

    kind: Literal["refund", "question"]
    amount: float


MAILS = [
    {"sender": "ana", "text": "The kettle arrived broken. I paid 34.90 EUR."},
    {"sender": "ben", "text": "When do you open on Saturday?"},
    {"sender": "cleo", "text": "Two of four cups are missing: 12.00 EUR."},
]

flow = Flow("support", title="Support mails", version="1")
mails = flow.input("mails", list[Mail], default=MAILS)
answers = flow.state("answers", list[str], default=[], reducer="append")

with flow.group("each", map={"over": mails, "as": "mail", "key": cel.mail.sender}) as each:

    @flow.step(effect="pure")
    def sort(mail: Mail) -> Sorted:
        """Determine the subject of a mail. A parameter named like the item receives the item."""
        amount = re.search(r"(\d+\.\d\d) EUR", mail["text"])
        if amount is None:
            return {"kind": "question", "amount": 0.0}
        return {"kind": "refund", "amount": float(amount[1])}

    ask = flow.step(
        "ask",
        approval={
            "title": f"Refund {sort.output.amount} EUR to {cel.mail.sender}?",
            "body": cel.mail.text,
            "subject": {"amount": sort.output.amount},
            "edit": ["amount"],
            "expires": "7d",
        },
    )
    refund = flow.step(
        "refund",
        set={"answers": f"{cel.mail.sender}: {ask.output.subject.amount} EUR are on their way."},
    )
    refuse = flow.step("refuse", set={"answers": f"{cel.mail.sender}: we cannot refund this."})
    reply = flow.step("reply", set={"answers": f"{cel.mail.sender}: from 9 to 18 o'clock."})

    sort.match(sort.output.kind, {"refund": ask}, otherwise=reply)
    ask.on(approve=refund, reject=refuse, expired=refuse).end()

flow.output("answers", cel.sort(answers))

if __name__ == "__main__":
    if "--yaml" in sys.argv:
        print(flow.to_yaml(), end="")
    else:
        with Engine() as engine:
            result = engine.run(flow)
            print(result.status, *(wait["title"] for wait in result.waits), sep="\n")
