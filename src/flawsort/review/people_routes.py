"""The routes of the review server about several people: the history, and the queue they share."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from flawsort.review.parameters import PROBLEMS, Current, Opened, Whole, checked_row
from flawsort.review.people import MOST_ENTRIES, Asker, HistoryBody, LeaveBody, describe_history
from flawsort.review.responses import describe_queue
from flawsort.review.schemas import QueueBody

router = APIRouter(responses=PROBLEMS)


@router.get("/r/{run}/api/history", response_model=HistoryBody)
def get_history(
    found: Current,
    before: Annotated[Whole | None, Query(description="only entries before this number")] = None,
    n: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = 100,
) -> HistoryBody:
    """Who changed what, and when, the last first."""
    told = found.session.history(before, n + 1)
    return describe_history(found.session.version, told, n)


@router.get("/r/{run}/api/queue", response_model=QueueBody)
def get_queue(
    found: Current,
    skip: Annotated[
        list[Whole] | None, Query(description="ids of groups to ask about later")
    ] = None,
    later: Annotated[list[Whole] | None, Query(description="rows to ask about later")] = None,
    asker: Annotated[
        Asker, Query(description="who asks: nobody else gets the question for a while")
    ] = "",
    hold: Annotated[
        bool, Query(description="rather the question that the asker has, if it is still open")
    ] = False,
) -> QueueBody:
    """The most informative question to ask next, of those that nobody else looks at."""
    rows = [checked_row(found, row) for row in later or ()]
    state = found.session.state
    answered = found.answered().union(rows)
    asked = found.leases.ask(asker, state, skipped=skip or (), answered=answered, hold=hold)
    return describe_queue(state, asked)


@router.post("/r/{run}/api/queue/leave", response_model=LeaveBody)
def post_leave(found: Opened, body: LeaveBody) -> LeaveBody:
    """Give back the question of somebody who looks at it no more, for others to be asked."""
    found.leases.leave(body.asker)
    return body
