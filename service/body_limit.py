"""A bound on the size of a request's body, announced or not."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Answers with `refusal` where more than `limit` bytes are announced; stops reading where they come unannounced."""

    def __init__(self, app: ASGIApp, limit: int, refusal: Response) -> None:
        self._app = app
        self._limit = limit
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if announced.isdigit() and int(announced) > self._limit:
            await self._refusal(scope, receive, send)
            return
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit:
                raise HTTPException(413)  # the application's own handler answers
            return message

        await self._app(scope, bounded, send)
