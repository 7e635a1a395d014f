"""`trainyard initialize` from Google's and Azure's stores: the same table of cases on each server, and each chain of credentials."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import subprocess
import urllib.parse
from collections.abc import Iterator

import clouds
import pytest
from test_initializers import initialize, listing
from web import content

PART = 64 << 10
OBJECTS = {
    "data/a.bin": content("a", 5 * PART + 11),
    "data/sub/b.txt": b"b",
    "data/empty": b"",
    "data/odd +%&ü,;.txt": b"odd",
    "data/sub/c.txt": b"c",
    "data2/z": b"z",
    "marked/": b"",
    "exp/model.bin": b"of exp",
    "exp#2/model.bin": b"of exp#2",
    "exp?lr=1&x/model.bin": b"of exp?lr=1&x",
    "clip?.wav": b"clip?",
    "#": b"hash",
    "one.txt": b"one",
}
SERVERS = {"google": clouds.Google, "azure": clouds.Azure, "s3": clouds.S3}
# the judges, where they were built (`make clouds`); the gate is the same everywhere
JUDGES = {"fake-gcs-server": (clouds.FAKE_GCS, clouds.FakeGcsServer), "azurite": (clouds.AZURITE, clouds.Azurite)}
if not os.environ.get("TRAINYARD_GATE"):
    SERVERS |= {name: server for name, (program, server) in JUDGES.items() if program.exists()}


@pytest.fixture(scope="module", params=SERVERS)
def store(request, tmp_path_factory) -> Iterator:
    make = SERVERS[request.param]
    server = make() if request.param in ("google", "azure", "s3") else make(tmp_path_factory.mktemp(request.param))
    for name, data in OBJECTS.items():
        server.put(name, data)
    yield server
    server.close()


def fetch(store, into: pathlib.Path, path: str, *flags: str, **variables: str) -> subprocess.CompletedProcess:
    variables = {**store.variables(), "PART_SIZE": str(PART), "NO_GCE_CHECK": "true", **variables}
    return initialize(into, f"{store.scheme}://bucket{path}", *flags, **{name: value for name, value in variables.items() if value})


@pytest.mark.parametrize(
    "path, patterns, names",
    [
        ("/data", "", {"a.bin", "sub/b.txt", "empty", "odd +%&ü,;.txt", "sub/c.txt"}),
        ("/data/", "*.txt", {"a.bin", "empty"}),
        ("/data/sub", "", {"b.txt", "c.txt"}),
        ("/one.txt", "", {"one.txt"}),
        ("/marked/", "", set()),
        ("/data", "*", set()),
        ("/exp#2/", "", {"model.bin"}),
        ("/exp?lr=1&x/", "", {"model.bin"}),
        ("/clip?.wav", "", {"clip?.wav"}),
        ("/#", "", {"#"}),
    ],
)
def test_what_a_location_means(store, tmp_path: pathlib.Path, path: str, patterns: str, names: set[str]):
    into = tmp_path / "into"
    done = fetch(store, into, path, IGNORE_PATTERNS=patterns)
    assert done.returncode == 0, done.stderr
    found = listing(into)
    assert set(found) == names
    for name, data in found.items():
        assert data in (OBJECTS.get(path[1:]), OBJECTS.get(f"{path[1:].rstrip('/')}/{name}")), name
    assert ("warning" in done.stderr) == (patterns == "*"), done.stderr


def test_a_long_listing_is_asked_for_at_once(tmp_path: pathlib.Path, monkeypatch):
    """What an earlier run found tells where stretches of it may begin; it need not be right."""
    monkeypatch.setattr(clouds, "PAGE", 1000)
    store, into = clouds.S3(), tmp_path / "into"
    for index in range(1200):
        store.put(f"data/{index:06}+ü", b"%d" % index)
    names = sorted(store.objects)

    def run() -> tuple[list[str], int]:
        store.pages.clear()
        before = store.media
        done = fetch(store, into, "/data/")
        assert done.returncode == 0, done.stderr
        found = listing(into)
        assert {name: found[name.removeprefix("data/")] for name in store.objects} == store.objects
        return sorted(store.pages), store.media - before

    assert run() == (["", names[1000]], 1200), "the first run knows nothing"
    assert run() == (["", names[899]], 0), "all pages at once"
    store.put(names[899] + "a", b"new")
    store.put("data/zz", b"new")
    del store.objects[names[899]]
    assert run() == (["", names[899]], 2), "a bound is gone, and what comes after it is new"
    store.begins = False
    pages, fetched = run()
    assert pages.count("") > 1 and fetched == 0, "the server begins each page with the first key"
    store.close()


@pytest.mark.parametrize("path, words", [("/dat", "data/"), ("/data/sub/d.txt", "data/sub/"), ("/nothing", "nearest")])
def test_a_prefix_without_a_key_names_the_nearest(store, tmp_path: pathlib.Path, path: str, words: str):
    done = fetch(store, tmp_path / "into", path)
    assert (done.returncode, words in done.stderr) == (3, True), done.stderr
    assert not (tmp_path / "into").exists()


def test_a_bucket_that_is_not_there(store, tmp_path: pathlib.Path):
    done = initialize(tmp_path / "into", f"{store.scheme}://other-bucket/x", **store.variables())
    assert done.returncode == 3 and "other-bucket" in done.stderr, done.stderr


def test_a_second_run_fetches_nothing(store, tmp_path: pathlib.Path):
    into = tmp_path / "into"
    assert json.loads(fetch(store, into, "/data", "-o", "json").stdout)["bytesFetched"] == sum(len(data) for name, data in OBJECTS.items() if name.startswith("data/"))
    assert json.loads(fetch(store, into, "/data", "-o", "json").stdout)["bytesFetched"] == 0
    (into / "a.bin").write_bytes(b"?" * len(OBJECTS["data/a.bin"]))
    assert fetch(store, into, "/data", "--verify").returncode == 5
    assert fetch(store, into, "/data").returncode == 0 and listing(into)["a.bin"] == OBJECTS["data/a.bin"]


@pytest.fixture(params=["google", "azure", "s3"])
def stub(request) -> Iterator:
    server = SERVERS[request.param]()
    for name, data in OBJECTS.items():
        server.put(name, data)
    yield server
    server.close()


def test_a_wrong_checksum_keeps_the_file_away(stub, tmp_path: pathlib.Path):
    for name in ["data/a.bin", "data/sub/b.txt"]:
        stub.tell[name] = {"crc32c": "AAAAAA==", "md5": base64.b64encode(bytes(16)).decode()}
        done = fetch(stub, tmp_path / "into", "/" + name)
        assert done.returncode == 5 and "checksum" in done.stderr, done.stderr
        assert listing(tmp_path / "into") == {}


def test_an_object_that_is_replaced_on_the_way_is_begun_anew(stub, tmp_path: pathlib.Path):
    other = content("other", 5 * PART + 11)
    stub.on_media = lambda name, count: stub.put(name, other) if count == 3 else None
    done = fetch(stub, tmp_path / "into", "/data/a.bin", CONCURRENCY="1")
    assert done.returncode == 0 and "replaced" in done.stderr, done.stderr
    assert listing(tmp_path / "into") == {"a.bin": other}


def test_an_object_that_is_replaced_again_and_again_is_given_up(stub, tmp_path: pathlib.Path):
    stub.on_media = lambda name, count: stub.put(name, content(f"version {count}", 5 * PART + 11))
    done = fetch(stub, tmp_path / "into", "/data/a.bin", CONCURRENCY="1")
    assert done.returncode == 5 and "replaced" in done.stderr and "no other program writes" in done.stderr, done.stderr
    assert listing(tmp_path / "into") == {}


# --- credentials


@pytest.fixture
def tokens() -> Iterator:
    """A server of tokens: `answers` by the path's end; another path is refused."""
    class Tokens:
        def __init__(self):
            self.answers: dict[str, object] = {}
            self.server = clouds.Server(self.route)

        def route(self, handler, path: str, query: dict) -> tuple:
            for end, answer in self.answers.items():
                if path.endswith(end):
                    found = answer(handler, query) if callable(answer) else answer
                    if found is not None:
                        return 200, {"Metadata-Flavor": "Google"}, found if isinstance(found, bytes) else json.dumps(found).encode()
            return 400, {}, json.dumps({"error": "invalid_grant", "error_description": f"refused {handler.body.decode()} {dict(handler.headers)}"}).encode()

    one = Tokens()
    yield one
    one.server.close()


def rsa_key() -> str:
    words = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def of_google(name: str, tokens, folder: pathlib.Path) -> dict:
    """Variables of one kind of credentials, and a server that gives `s3cr3t-token` for them alone."""
    url, answer = tokens.server.url, {"access_token": "s3cr3t-token", "expires_in": 3600}
    def fields(handler) -> dict:
        return dict(urllib.parse.parse_qsl(handler.body.decode()))
    def claims(handler) -> dict:
        part = fields(handler).get("assertion", "..").split(".")[1]
        return json.loads(base64.urlsafe_b64decode(part + "=="))
    key = {"type": "service_account", "client_email": "me@project", "private_key": rsa_key(), "token_uri": f"{url}/jwt"}
    user = {"type": "authorized_user", "client_id": "id", "client_secret": "s3cr3t-client", "refresh_token": "s3cr3t-refresh", "token_uri": f"{url}/user"}
    (folder / "subject").write_text(json.dumps({"jwt": "s3cr3t-subject"}))
    source = {"file": str(folder / "subject"), "format": {"type": "json", "subject_token_field_name": "jwt"}}
    federated = {"type": "external_account", "audience": "pool", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": f"{url}/exchange", "credential_source": source}
    becomes = {"type": "impersonated_service_account", "service_account_impersonation_url": f"{url}/become", "source_credentials": user}
    tokens.answers = {
        "/jwt": lambda handler, query: answer if claims(handler)["iss"] == "me@project" and claims(handler)["aud"] == f"{url}/jwt" else None,
        "/user": lambda handler, query: answer if fields(handler).get("refresh_token") == "s3cr3t-refresh" else None,
        "/exchange": lambda handler, query: answer if fields(handler).get("subject_token") == "s3cr3t-subject" else None,
        "/become": lambda handler, query: {"accessToken": "s3cr3t-token", "expireTime": "2099-01-01T00:00:00Z"} if handler.headers["Authorization"] == "Bearer s3cr3t-token" else None,
        "/default/token": lambda handler, query: answer if handler.headers["Metadata-Flavor"] == "Google" else None,
    }
    file = folder / "key.json"
    def by_file(value: dict) -> dict:
        file.write_text(json.dumps(value))
        return {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}
    return {
        "key file": lambda: by_file(key),
        "key as text": lambda: {"GOOGLE_CREDENTIALS": json.dumps(key)},
        "login": lambda: by_file(user),
        "federation": lambda: by_file(federated),
        "another's name": lambda: by_file(becomes),
        "machine": lambda: {"GCE_METADATA_HOST": tokens.server.host, "NO_GCE_CHECK": ""},
        "token": lambda: {"GOOGLE_OAUTH_ACCESS_TOKEN": "s3cr3t-token"},
    }[name]()


@pytest.mark.parametrize("name", ["key file", "key as text", "login", "federation", "another's name", "machine", "token"])
def test_credentials_of_google(tokens, tmp_path: pathlib.Path, name: str):
    store = clouds.Google()
    store.put("x", b"x")
    store.token = "s3cr3t-token"
    where = {"STORAGE_EMULATOR_HOST": "", "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": store.server.url}
    good = of_google(name, tokens, tmp_path)
    done = fetch(store, tmp_path / "into", "/x", **where, **good)
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x": b"x"}, done.stderr
    store.token = "another"
    refused = fetch(store, tmp_path / "other", "/x", **where, **good)
    tokens.answers = {}
    ungiven = fetch(store, tmp_path / "other", "/x", **where, **good)
    store.close()
    assert (refused.returncode, ungiven.returncode) == (4, 4), refused.stderr + ungiven.stderr
    assert_secret(tmp_path, done, refused, ungiven)


def assert_secret(folder: pathlib.Path, *runs: subprocess.CompletedProcess) -> None:
    told = "".join(run.stdout + run.stderr for run in runs)
    told += "".join(path.read_text(errors="replace") for path in (folder / "into" / ".trainyard").rglob("*") if path.is_file())
    assert "s3cr3t" not in told and "PRIVATE KEY" not in told and clouds.KEY not in told, told


def of_azure(name: str, tokens, folder: pathlib.Path) -> dict:
    url, answer = tokens.server.url, {"access_token": "s3cr3t-token", "expires_in": "3600"}
    def fields(handler) -> dict:
        return dict(urllib.parse.parse_qsl(handler.body.decode()))
    def principal(handler, query) -> object:
        return answer if {"s3cr3t-client", "s3cr3t-subject"} & set(fields(handler).values()) and fields(handler)["scope"] == "https://storage.azure.com/.default" else None
    tokens.answers = {
        "/tenant/oauth2/v2.0/token": principal,
        "/metadata/identity/oauth2/token": lambda handler, query: answer if handler.headers["Metadata"] == "true" and query["resource"] == "https://storage.azure.com/" else None,
        "/msi": lambda handler, query: answer if handler.headers["X-Identity-Header"] == "s3cr3t-header" else None,
    }
    (folder / "subject").write_text("s3cr3t-subject\n")
    of_entra = {"AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "client", "AZURE_AUTHORITY_HOST": url + "/"}
    return {
        "principal": {**of_entra, "AZURE_CLIENT_SECRET": "s3cr3t-client"},
        "workload identity": {**of_entra, "AZURE_FEDERATED_TOKEN_FILE": str(folder / "subject")},
        "machine": {"AZURE_POD_IDENTITY_AUTHORITY_HOST": url},
        "service": {"IDENTITY_ENDPOINT": url + "/msi", "IDENTITY_HEADER": "s3cr3t-header"},
        "signature": {"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=s3cr3t%2Fsignature"},
        "connection string": {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName={clouds.ACCOUNT};AccountKey={clouds.KEY};"},
    }[name]


@pytest.mark.parametrize("name", ["principal", "workload identity", "machine", "service", "signature", "connection string"])
def test_credentials_of_azure(tokens, tmp_path: pathlib.Path, name: str):
    store = clouds.Azure()
    store.put("x", b"x")
    def carries(headers, query) -> bool:
        authorization = headers.get("Authorization", "")
        return {"signature": query.get("sig") == "s3cr3t/signature", "connection string": authorization.startswith(f"SharedKey {clouds.ACCOUNT}:")}.get(name, authorization == "Bearer s3cr3t-token")
    store.allowed = carries
    good = {"AZURE_STORAGE_KEY": "", **of_azure(name, tokens, tmp_path)}
    done = fetch(store, tmp_path / "into", "/x", **good)
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x": b"x"}, done.stderr
    store.allowed = lambda headers, query: False
    refused = fetch(store, tmp_path / "other", "/x", **good)
    tokens.answers = {}
    ungiven = fetch(store, tmp_path / "other", "/x", **good)
    store.close()
    assert (refused.returncode, ungiven.returncode) == (4, 4), refused.stderr + ungiven.stderr
    assert_secret(tmp_path, done, refused, ungiven)


def of_aws(name: str, tokens, folder: pathlib.Path) -> dict:
    url, until = tokens.server.url, "2099-01-01T00:00:00Z"
    (folder / "subject").write_text("s3cr3t-subject\n")
    (folder / "shared").write_text(f"[me]\naws_access_key_id = {AKID}\naws_secret_access_key = s3cr3t-key\naws_session_token = s3cr3t-session\n")
    keys = {"Code": "Success", "AccessKeyId": AKID, "SecretAccessKey": "s3cr3t-key", "Token": "s3cr3t-session", "Expiration": until}
    known = lambda handler, answer: answer if handler.headers["X-aws-ec2-metadata-token"] == "s3cr3t-metadata" else None
    def sts(action: str, key: str, session: str) -> bytes:
        names = f"<AccessKeyId>{AKID}</AccessKeyId><SecretAccessKey>{key}</SecretAccessKey><SessionToken>{session}</SessionToken>"
        return f"<{action}Response><{action}Result><Credentials>{names}<Expiration>{until}</Expiration></Credentials></{action}Result></{action}Response>".encode()

    def at_sts(handler, query) -> bytes | None:
        query = {**query, **dict(urllib.parse.parse_qsl(handler.body.decode()))}
        if query.get("Action") == "AssumeRoleWithWebIdentity" and query["WebIdentityToken"] == "s3cr3t-subject":
            # who is to become another one signs with these
            return sts(query["Action"], "s3cr3t-first", "s3cr3t-early") if name == "role by web identity" else sts(query["Action"], "s3cr3t-key", "s3cr3t-session")
        first = {"role": (AKID[::-1], "s3cr3t-first", None), "role by web identity": (AKID, "s3cr3t-first", "s3cr3t-early")}.get(name)
        if first and query.get("Action") == "AssumeRole" and query["RoleArn"] == ROLE and clouds.is_signed(handler, *first):
            return sts("AssumeRole", "s3cr3t-key", "s3cr3t-session")
        return None

    web_identity = {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/pod", "AWS_WEB_IDENTITY_TOKEN_FILE": str(folder / "subject"), "AWS_ENDPOINT_URL_STS": url + "/sts"}
    tokens.answers = {
        "/latest/api/token": lambda handler, query: b"s3cr3t-metadata" if handler.command == "PUT" else None,
        "/security-credentials/": lambda handler, query: known(handler, b"node"),
        "/security-credentials/node": lambda handler, query: known(handler, keys),
        "/pod": lambda handler, query: keys if handler.headers["Authorization"] == "s3cr3t-subject" else None,
        "/sts/": at_sts,
    }
    return {
        "machine": {"AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": url},
        "pod identity": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/pod", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(folder / "subject")},
        "web identity": web_identity,
        "role by web identity": {**web_identity, "ROLE_ARN": ROLE},
        "role": {"ROLE_ARN": ROLE, "ACCESS_KEY_ID": AKID[::-1], "SECRET_ACCESS_KEY": "s3cr3t-first", "AWS_ENDPOINT_URL_STS": url + "/sts"},
        "profile": {"AWS_PROFILE": "me", "AWS_SHARED_CREDENTIALS_FILE": str(folder / "shared")},
    }[name]


AKID, ROLE = "AKIDAKIDAKIDAKID", "arn:aws:iam::123456789012:role/reader"


@pytest.mark.parametrize("name", ["machine", "pod identity", "web identity", "profile", "role", "role by web identity"])
def test_credentials_of_aws(tokens, tmp_path: pathlib.Path, name: str):
    store = clouds.S3()
    store.put("x", b"x")
    store.allowed = lambda handler, query: clouds.is_signed(handler, AKID, "s3cr3t-key", "s3cr3t-session")
    place = {"ENDPOINT": store.server.url, "REGION": "us-east-1", **of_aws(name, tokens, tmp_path)}
    place = {variable: value for variable, value in place.items() if value or variable == "AWS_EC2_METADATA_DISABLED"}
    done = initialize(tmp_path / "into", "s3://bucket/x", **place)
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x": b"x"}, done.stderr
    store.allowed = lambda handler, query: False
    refused = initialize(tmp_path / "other", "s3://bucket/x", **place)
    assert refused.returncode == 4, refused.stderr
    store.close()
    assert_secret(tmp_path, done, refused)
