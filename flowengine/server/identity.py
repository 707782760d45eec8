"""The user of a request, from its credential alone."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence

from starlette.datastructures import URL

from flowengine.server.guard import Rates
from flowengine.server.oidc import OidcProvider, host_secret
from flowengine.server.records import AccessToken, ServerRecords, SignedIn, SignedInSession
from flowengine.server.refusals import RequestRefused
from flowengine.server.rights import LOCAL, USER_NAME, Principal, Proof, access_of
from flowengine.server.sign_in import CodeFlow
from flowengine.settings import Settings

FAILURES = 20
"""Failed attempts of an address in a minute. Further ones are answered with 429."""
PROXY = "(proxy)"
"""The credential of users whom the proxy names. No token has this name."""
OIDC = "(oidc)"
"""The credential of users whom an OpenID provider names."""
SESSION_COOKIE = "flowengine_session"
_DOTS = 2
"""Dots in a JWT. Tokens of this server have none."""
_CHALLENGE = {"www-authenticate": "Bearer"}


class Identity:
    """Checks credentials.

    Args:
        records: Contains the tokens.
        settings: Those of the host, with the roles.
        owner: The user who runs the server.
        local: The token of this user.
    """

    def __init__(self, records: ServerRecords, settings: Settings, owner: str, local: str) -> None:
        self._records = records
        self._settings = settings
        self._owner = owner
        self._local = local
        self._local_session = f"{LOCAL} {hashlib.sha256(local.encode()).hexdigest()[:16]}"
        """The credential of this user's sessions, which end when the token is replaced."""
        rules = None if settings.sign_in is None else settings.sign_in.oidc
        self._provider = None if rules is None else OidcProvider(rules)
        self.code_flow: CodeFlow | None = None
        """Sign-ins of browsers with the provider."""
        if self._provider is not None and rules is not None and rules.client:
            self.code_flow = CodeFlow(self._provider, rules)
        self._issuer = "" if rules is None else rules.issuer
        self._failures = Rates(FAILURES, "invalid credentials", at_once=FAILURES)

    def of_proxy(self, headers: Mapping[str, list[str]], address: str) -> Principal | None:
        """Return the user whom the trusted proxy names. None: the request is not from it.

        The user who runs the server has no rights in this way, because names of the proxy's users
        are not those of this machine.

        Args:
            headers: Values of each header, by its name in lower case.
            address: The address of the client.

        Raises:
            RequestRefused: A header of the proxy is there, and the secret or the user is not valid.
        """
        rules = None if self._settings.sign_in is None else self._settings.sign_in.proxy
        if rules is None:
            return None
        users, secrets = headers.get(rules.user_header, []), headers.get(rules.secret_header, [])
        if not users and not secrets:
            return None
        right = host_secret("the proxy", rules.secret)
        given = secrets[0] if len(secrets) == 1 else ""
        if not hmac.compare_digest(given.encode(), right) or len(users) > 1:
            self.note_failure(address)
            raise RequestRefused(401, "this request is not from the proxy that names users")
        if not users:
            return None
        if USER_NAME.fullmatch(users[0]) is None:
            raise RequestRefused(401, "the proxy names no valid user")
        user = f"user:{users[0]}"  # each of its requests proves it
        return Principal(user, PROXY, access_of(user, "", self._settings))

    def proxy_session(self, principal: Principal) -> SignedInSession:
        """Return the session of a user whom the proxy names: each request proves it again."""
        message = f"form {principal.user}".encode()
        return SignedInSession(
            PROXY, hmac.new(self._local.encode(), message, hashlib.sha256).hexdigest()
        )

    def begin_session(self, principal: Principal) -> str:
        """Begin a session of a user in a browser, and return its secret, for the cookie."""
        token = self._local_session if principal.token == LOCAL else principal.token
        return self._records.begin_session(token, int(time.time() * 1000))

    def of_session(self, secret: str) -> tuple[Principal, SignedInSession] | None:
        """Return the user of a browser's session, unless it or its token has ended.

        Args:
            secret: The value of the cookie.
        """
        session = self._records.find_session(secret, int(time.time() * 1000))
        if session is None:
            return None
        try:
            return _proven(lambda: self._of_session(secret)), session
        except RequestRefused:
            return None

    def _of_session(self, secret: str) -> Principal:
        now = int(time.time() * 1000)
        session = self._records.find_session(secret, now)
        if session is not None:
            if session.token == self._local_session:
                return self.local()
            if (user := session.named) is not None:
                if self.code_flow is not None and user.issuer == self._issuer:
                    return self._named(user.user, user.groups)
            elif (token := self._records.token_named(session.token, now)) is not None:
                return self._principal_of(token)
        raise RequestRefused(401, "the session has ended", hint="sign in again")

    def of(self, authorization: str | None, address: str) -> Principal:
        """Return the user of a request.

        Args:
            authorization: The header.
            address: The address of the client.

        Raises:
            RequestRefused: The credential is missing or not valid.
        """
        return _proven(lambda: self._of(authorization, address))

    def _of(self, authorization: str | None, address: str) -> Principal:
        scheme, _, text = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not text:
            raise RequestRefused(
                401,
                "the request has no credential",
                hint="send 'Authorization: Bearer TOKEN'. See: flowengine tokens create --help",
                headers=_CHALLENGE,
            )
        text = text.strip()
        if self._provider is not None and text.count(".") == _DOTS:
            try:
                named = self._provider.named_by(text)
            except RequestRefused as error:
                if error.status == 401:
                    self.note_failure(address)
                    raise RequestRefused(401, error.message, headers=_CHALLENGE) from None
                raise
            return self._named(named.user, named.groups)
        if hmac.compare_digest(text.encode(), self._local.encode()):
            return self.local()
        token = self._records.find_token(text, int(time.time() * 1000))
        if token is None:
            self.note_failure(address)
            raise RequestRefused(
                401, "the token is unknown, expired or revoked", headers=_CHALLENGE
            )
        return self._principal_of(token)

    def _named(self, name: str, groups: Sequence[str]) -> Principal:
        user = f"user:{name}"
        access = access_of(user, "", self._settings, [f"group:{group}" for group in groups])
        return Principal(user, OIDC, access)

    def finish_at_provider(
        self, given: Mapping[str, str], browser: str, address: str
    ) -> tuple[Principal, Callable[[], str], str]:
        """Return the user, what begins a session and returns its secret, and the path to show.

        Args:
            given: The parameters with which the browser came back.
            browser: The secret in its cookie.
            address: The address of the client.

        Raises:
            RequestRefused: The sign-in is not valid.
        """
        try:
            named, following = self.flow_at_provider().finish(given, browser)
        except RequestRefused as error:
            if error.status == 401 and "error" not in given:
                self.note_failure(address)
            raise
        user = SignedIn(named.user, named.groups, self._issuer)

        def begin() -> str:
            return self._records.begin_session(OIDC, int(time.time() * 1000), user)

        return self._named(named.user, named.groups), begin, following

    def flow_at_provider(self) -> CodeFlow:
        """Return the sign-ins with the provider.

        Raises:
            RequestRefused: There are none.
        """
        if self.code_flow is None:
            raise RequestRefused(404, "this server has no sign-in with a provider")
        return self.code_flow

    def local(self) -> Principal:
        """Return the user who runs the server."""
        return Principal(self._owner, LOCAL, access_of(self._owner, self._owner, self._settings))

    def _principal_of(self, token: AccessToken) -> Principal:
        access = access_of(token.user, self._owner, self._settings)
        return Principal(token.user, token.name, access, token.scope)

    def note_failure(self, address: str) -> None:
        """Count a credential or a signature of an address that was not valid.

        Only these are refused after many: others behind the same address, and pages that a browser
        was made to request, must not lock out valid credentials.

        Raises:
            RequestRefused: There were too many.
        """
        self._failures.count(address)


def _proven(read: Callable[[], Principal]) -> Principal:
    """Return a user with the proof of the rights."""
    proof = Proof(read)
    return proof.proven._replace(proof=proof)


def cookie_name(name: str, url: URL) -> str:
    """Return the name of a cookie of the server at an address.

    Browsers send the cookies of a host to all of its ports. The port in the name keeps servers
    apart that run on the same host. `__Host-` binds the cookie to this host, with TLS.
    """
    port = "" if url.port is None else f"_{url.port}"
    return f"{'__Host-' if url.scheme == 'https' else ''}{name}{port}"
