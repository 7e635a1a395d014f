"""Who gets what from the dashboard: forged requests, half sessions, users with few rights. By requests, without a browser."""

from __future__ import annotations

import http.client
import json
import urllib.parse

import pytest
import yaml
from conftest import Yard, wait_for

HEADER = "x-trainyard-session"


class Session:
    """A client with the two halves of a session, as a page has them."""

    def __init__(self, yard: Yard):
        self.host = urllib.parse.urlsplit(yard.running["dashboard"]).netloc
        self.cookie = self.half = ""

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict, dict[str, str]]:
        sent = {"Host": self.host, "Cookie": self.cookie, HEADER: self.half, **headers}
        connection = http.client.HTTPConnection(self.host, timeout=30)
        try:
            text = None
            if body is not None:
                text = json.dumps(body)
                sent["Content-Type"] = "application/json"
            connection.request(method, path, text, {name: value for name, value in sent.items() if value})
            answer = connection.getresponse()
            data = answer.read()
            value = json.loads(data) if data.startswith((b"{", b"[")) else {}
            return answer.status, value, {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def sign_in(self, **credential: str) -> Session:
        status, value, headers = self.ask("POST", "/api/session", credential)
        assert status == 200, value
        self.cookie, self.half = headers["set-cookie"].split(";")[0], value["half"]
        return self


def code(yard: Yard) -> str:
    url = json.loads(yard.run("dashboard", "--no-open", "-o", "json").stdout)["url"]
    return urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["code"][0]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory):
    yard = Yard(tmp_path_factory.mktemp("guard") / "home", "--no-node")
    for namespace in ("a", "b"):
        yard.kubectl("create", "namespace", namespace)
        for number in range(3):
            create_job(yard, namespace, f"job-{namespace}-{number}")
    yield yard
    yard.down()


def create_job(yard: Yard, namespace: str, name: str) -> None:
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name, "namespace": namespace},
        "spec": {"runtimeRef": {"name": "torch-distributed"}},
    }  # fmt: skip
    yard.kubectl("create", "-f", "-", input=json.dumps(job))


@pytest.fixture
def admin(yard: Yard) -> Session:
    return Session(yard).sign_in(code=code(yard))


def user(yard: Yard, name: str, namespace: str, *verbs: str) -> Session:
    """Signed in as a ServiceAccount that may do this with TrainJobs of a namespace."""
    yard.kubectl("-n", namespace, "create", "serviceaccount", name)
    role = ["--verb", ",".join(verbs), "--resource", "trainjobs.trainer.kubeflow.org"]
    yard.kubectl("-n", namespace, "create", "role", name, *role)
    yard.kubectl("-n", namespace, "create", "rolebinding", name, "--role", name, f"--serviceaccount={namespace}:{name}")
    token = yard.kubectl("-n", namespace, "create", "token", name).stdout.strip()
    return Session(yard).sign_in(token=token)


ROUTES = [
    ("GET", "/api/session"),
    ("DELETE", "/api/session"),
    ("GET", "/api/jobs"),
    ("GET", "/api/jobs/live"),
    ("GET", "/api/jobs/trainjob/a/job-a-0"),
    ("GET", "/api/jobs/trainjob/a/job-a-0/logs"),
    ("GET", "/api/jobs/trainjob/a/job-a-0/logs/live"),
    ("POST", "/api/actions"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_both_halves_there_is_nothing(yard: Yard, admin: Session, method: str, path: str) -> None:
    other = Session(yard).sign_in(code=code(yard))
    for cookie, half in [("", ""), (admin.cookie, ""), ("", admin.half), (admin.cookie, other.half), ("x=y", "z"), (admin.cookie, "é")]:
        session = Session(yard)
        session.cookie, session.half = cookie, half.encode().decode("latin-1")
        body = {"verb": "delete", "jobs": []} if method == "POST" else None
        status, value, _ = session.ask(method, path, body)
        assert (status, value.get("reason")) == (401, "signedOut"), (cookie, half)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
    ],
)
def test_other_sites_get_nothing(admin: Session, headers: dict[str, str], status: int) -> None:
    for method, path in [("GET", "/api/jobs"), ("POST", "/api/session"), ("POST", "/api/actions"), ("GET", "/")]:
        got, value, _ = admin.ask(method, path, {} if method == "POST" else None, **headers)
        assert (got, value.get("reason")) == (status, "wrongOrigin"), (method, path)


def test_codes_are_good_once_and_for_who_may_have_one(yard: Yard) -> None:
    once = code(yard)
    Session(yard).sign_in(code=once)
    status, value, _ = Session(yard).ask("POST", "/api/session", {"code": once})
    assert (status, value["reason"]) == (401, "codeUsed")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer "}):
        assert Session(yard).ask("POST", "/api/codes", **headers)[0] == 401
    for body in ({}, {"code": 1}, {"code": "x", "token": "y"}, [], "x"):
        assert Session(yard).ask("POST", "/api/session", body)[0] == 400


def test_answers_bind_the_browser(yard: Yard, admin: Session) -> None:
    _, _, headers = admin.ask("GET", "/")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';") and "unsafe" not in policy
    nonces = {admin.ask("GET", "/")[2]["content-security-policy"].split("nonce-")[1].split("'")[0] for _ in range(3)}
    assert len(nonces) == 3
    for path in ("/", "/api/jobs", "/assets/none", "/jobs/x"):
        _, _, headers = admin.ask("GET", path)
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY", path
        assert "access-control-allow-origin" not in headers, path
    status, _, headers = Session(yard).ask("POST", "/api/session", {"code": code(yard)})
    assert status == 200
    assert "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]


def test_a_user_sees_what_they_may_list(yard: Yard) -> None:
    reader = user(yard, "reader", "a", "get", "list")
    rows = lambda query: [row["name"] for row in reader.ask("GET", f"/api/jobs?{query}")[1]["rows"]]
    assert sorted(rows("kind=trainjob&namespace=a")) == ["job-a-0", "job-a-1", "job-a-2"]
    assert rows("kind=trainjob&namespace=b") == []
    assert sorted(rows("kind=trainjob&namespace=a&namespace=b")) == ["job-a-0", "job-a-1", "job-a-2"]
    _, page, _ = reader.ask("GET", "/api/jobs?namespace=b")
    assert page["total"] == 0 and page["counts"] == {}
    assert "you have no right to list trainjobs in b" in page["hidden"]
    # what is counted, too, is theirs alone
    assert sum(reader.ask("GET", "/api/jobs?namespace=a&namespace=b&text=job-b")[1]["counts"].values()) == 0
    status, value, _ = reader.ask("GET", "/api/jobs/trainjob/b/job-b-0")
    assert (status, value["reason"]) == (403, "forbidden")
    assert reader.ask("GET", "/api/jobs/trainjob/b/job-b-0/logs")[0] == 403


def test_actions_need_the_users_own_rights(yard: Yard, admin: Session) -> None:
    editor = user(yard, "editor", "a", "get", "list", "patch")
    uid = lambda name, namespace: json.loads(yard.kubectl("-n", namespace, "get", "trainjob", name, "-o", "json").stdout)["metadata"]["uid"]
    meant = [{"kind": "trainjob", "namespace": n, "name": f"job-{n}-1", "uid": uid(f"job-{n}-1", n)} for n in ("a", "b")]
    _, outcomes, _ = editor.ask("POST", "/api/actions", {"verb": "suspend", "jobs": meant})
    assert [outcome["ok"] for outcome in outcomes] == [True, False] and "cannot get" in outcomes[1]["message"]
    _, outcomes, _ = editor.ask("POST", "/api/actions", {"verb": "delete", "jobs": meant[:1]})
    assert not outcomes[0]["ok"] and "cannot delete" in outcomes[0]["message"]
    # a job that was made again is another one
    _, outcomes, _ = admin.ask("POST", "/api/actions", {"verb": "delete", "jobs": [{**meant[0], "uid": "other"}]})
    assert not outcomes[0]["ok"] and "created again" in outcomes[0]["message"]
    _, outcomes, _ = admin.ask("POST", "/api/actions", {"verb": "delete", "jobs": meant[:1], "dryRun": True})
    assert outcomes[0]["ok"] and yard.kubectl("-n", "a", "get", "trainjob", "job-a-1")


def test_a_right_that_is_taken_away_ends_within_half_a_minute(yard: Yard) -> None:
    reader = user(yard, "leaver", "b", "get", "list")
    total = lambda: reader.ask("GET", "/api/jobs?kind=trainjob&namespace=b")[1]["total"]
    assert total() == 3
    yard.kubectl("-n", "b", "delete", "rolebinding", "leaver")
    wait_for("the right to end", lambda: total() == 0, 35)


@pytest.mark.parametrize(
    "path",
    [
        "/api/jobs?kind=pod", "/api/jobs?cursor=00", "/api/jobs?limit=0", "/api/jobs?sort=x", "/api/jobs?made=up", "/api/jobs?limit=201",
        "/api/jobs/trainjob/a/job-a-0/logs?rank=x", "/api/jobs/trainjob/a/job-a-0/logs?lines=999999",
    ],
)  # fmt: skip
def test_what_is_made_up_is_refused(admin: Session, path: str) -> None:
    status, value, _ = admin.ask("GET", path)
    assert (status, value["reason"]) == (400, "badRequest") and len(value["message"]) > 10


@pytest.mark.parametrize("path", ["pod/a/x", "trainjob/a/..%2f..%2fx", "trainjob/A/x", "trainjob/a/none", "trainjob/a/%00"])
def test_what_is_not_there_is_said_so(admin: Session, path: str) -> None:
    assert admin.ask("GET", f"/api/jobs/{path}")[0] == 404


def test_an_unsafe_address_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("unsafe") / "home"
    with pytest.raises(AssertionError, match="speaks HTTP without TLS"):
        Yard(home, "--dashboard", "0.0.0.0:0")
    yard = Yard(home, "--dashboard", "none")
    try:
        assert "dashboard" not in yard.running
        assert "--dashboard none" in yard.run("dashboard", check=False).stderr
    finally:
        yard.down()


def test_no_token_is_written_anywhere(yard: Yard, admin: Session) -> None:
    """The home has its administrator's token in two files as ever; of sessions it has hashes."""
    token = yaml.safe_load((yard.home / "kubeconfig").read_text())["users"][0]["user"]["token"]
    name = admin.cookie.split("=")[1]
    holders = set()
    for path in yard.home.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if name.encode() in data or admin.half.encode() in data:
                holders.add(path.name)
            if token.encode() in data:
                holders.add(f"token: {path.name}")
    assert holders <= {"token: kubeconfig", "token: token", "token: up.log"} and "token: up.log" not in holders
