//! The health check of gRPC (`grpc.health.v1.Health/Check`) over HTTP/2: one call, a message of one field each way.

use crate::http_get::{ConnectError, beside, connect};
use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use http::{HeaderMap, Request};
use std::time::Duration;

/// Status codes of gRPC that a kubelet has words for.
const OK: u32 = 0;
const DEADLINE_EXCEEDED: u32 = 4;
const UNIMPLEMENTED: u32 = 12;
/// Longest answer that is read: a health check's has two bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Why a service is not healthy, in the kubelet's words.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    #[error("error: failed to connect service at {address:?}: {why}")]
    Connect { address: String, why: ConnectError },
    #[error("timeout: failed to connect service {address:?} within {secs}s: context deadline exceeded")]
    ConnectTimedOut { address: String, secs: u64 },
    #[error("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}")]
    Unimplemented { message: String },
    #[error("timeout: health rpc did not complete within {secs}s")]
    TimedOut { secs: u64 },
    #[error("error: health rpc probe failed: rpc error: code = {} desc = {message}", name(*code))]
    Status { code: u32, message: String },
    #[error("error: health rpc probe failed: {why}")]
    Call { why: CallError },
    #[error("service unhealthy (responded with {status:?})")]
    Unhealthy { status: String },
}

/// Why a call brought no status.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Transport(#[from] h2::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("unexpected HTTP status code received from server: {0}")]
    HttpStatus(http::StatusCode),
    #[error("server closed the stream without sending trailers")]
    NoTrailers,
    #[error("the answer is too long")]
    TooLong,
    #[error("the answer cannot be read")]
    Unreadable,
}

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    code: u32,
    message: String,
}

/// Asks for the health of a service (`""`: of the server as a whole).
///
/// # Errors
/// It is not healthy, or did not say so in time; in the kubelet's words.
pub async fn check(host: &str, port: u16, service: &str, limit: Duration) -> Result<(), HealthError> {
    let address = format!("{host}:{port}");
    let secs = limit.as_secs();
    let started = tokio::time::Instant::now();
    let deadline = api::time::after(started, limit);
    let stream = match tokio::time::timeout_at(deadline, connect(host, port)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return Err(HealthError::Connect { address, why }),
        Err(_) => {
            return Err(HealthError::ConnectTimedOut { address, secs });
        }
    };
    let call = async {
        let (sender, connection) = h2::client::handshake(stream).await?;
        beside(connection, call(sender, &address, service)).await
    };
    match tokio::time::timeout_at(deadline, call).await {
        Ok(Ok((Status { code: OK, .. }, answer))) => verdict(&answer),
        Ok(Ok((Status { code: UNIMPLEMENTED, message }, _))) => Err(HealthError::Unimplemented { message }),
        Ok(Ok((Status { code: DEADLINE_EXCEEDED, .. }, _))) | Err(_) => Err(HealthError::TimedOut { secs }),
        Ok(Ok((Status { code, message }, _))) => Err(HealthError::Status { code, message }),
        Ok(Err(why)) => Err(HealthError::Call { why }),
    }
}

async fn call(
    sender: h2::client::SendRequest<Bytes>,
    address: &str,
    service: &str,
) -> Result<(Status, Bytes), CallError> {
    let mut sender = sender.ready().await?;
    let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.36")
        .body(())?;
    let (answer, mut body) = sender.send_request(request, false)?;
    body.send_data(question(service), true)?;
    let answer = answer.await?;
    let (head, mut body) = answer.into_parts();
    if let Some(status) = status(&head.headers) {
        return Ok((status, Bytes::new())); // trailers only
    }
    if head.status != http::StatusCode::OK {
        return Err(CallError::HttpStatus(head.status));
    }
    let message = read(&mut body).await?;
    let trailers = body.trailers().await?.unwrap_or_default();
    let status = status(&trailers).ok_or(CallError::NoTrailers)?;
    Ok((status, message))
}

async fn read(body: &mut RecvStream) -> Result<Bytes, CallError> {
    let mut message = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        if message.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
            return Err(CallError::TooLong);
        }
        body.flow_control().release_capacity(chunk.len())?;
        message.extend_from_slice(&chunk);
    }
    Ok(message.freeze())
}

fn status(headers: &HeaderMap) -> Option<Status> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    Some(Status { code, message })
}

/// `HealthCheckRequest { string service = 1 }`, framed: not compressed, its length, itself.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        put_varint(&mut message, service.len());
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(&message);
    framed.freeze()
}

fn put_varint(out: &mut BytesMut, mut number: usize) {
    while number >= 0x80 {
        out.put_u8((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// What `HealthCheckResponse { ServingStatus status = 1 }` says.
fn verdict(framed: &[u8]) -> Result<(), HealthError> {
    let (_, message) = framed.split_at_checked(5).unwrap_or_default();
    let number = match message {
        [] => 0, // the default is not sent
        [0x08, number, ..] => *number,
        _ => return Err(HealthError::Call { why: CallError::Unreadable }),
    };
    let status = match number {
        1 => return Ok(()),
        0 => "UNKNOWN".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    };
    Err(HealthError::Unhealthy { status })
}

/// A status code by its name, as gRPC for Go prints it.
fn name(code: u32) -> String {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    let known = usize::try_from(code).ok().and_then(|code| NAMES.get(code));
    known.map_or_else(|| format!("Code({code})"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2::server::SendResponse;
    use http::Response;
    use tokio::net::TcpListener;

    /// A server that answers each call with these bytes and this status; whether it was asked the right thing shows in it.
    async fn serve(answer: &'static [u8], status: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, respond))) = connection.accept().await {
                tokio::spawn(respond_to(request, respond, answer, status));
            }
        });
        port
    }

    async fn respond_to(
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        answer: &'static [u8],
        status: &'static str,
    ) {
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        assert_eq!(request.headers()["te"], "trailers");
        let asked = read(&mut request.into_body()).await.unwrap();
        let status = if asked == question("svc") { status } else { "3" };
        if answer.is_empty() {
            let head = Response::builder().header("grpc-status", status).header("grpc-message", "no such thing");
            respond.send_response(head.body(()).unwrap(), true).unwrap();
            return;
        }
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from_static(answer), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.parse().unwrap());
        body.send_trailers(trailers).unwrap();
    }

    #[tokio::test]
    async fn health_is_what_the_server_says() {
        let cases: [(&'static [u8], &'static str, Result<(), &str>); 5] = [
            (&[0, 0, 0, 0, 2, 8, 1], "0", Ok(())),
            (&[0, 0, 0, 0, 2, 8, 2], "0", Err("service unhealthy (responded with \"NOT_SERVING\")")),
            (&[0, 0, 0, 0, 0], "0", Err("service unhealthy (responded with \"UNKNOWN\")")),
            (
                &[],
                "12",
                Err(
                    "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): no such thing",
                ),
            ),
            (&[], "5", Err("error: health rpc probe failed: rpc error: code = NotFound desc = no such thing")),
        ];
        for (answer, status, expected) in cases {
            let port = serve(answer, status).await;
            let result = check("127.0.0.1", port, "svc", Duration::from_secs(20)).await;
            assert_eq!(result.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_not_healthy() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let result = check("127.0.0.1", port, "", Duration::from_secs(1)).await;
        assert_eq!(result.unwrap_err().to_string(), "timeout: health rpc did not complete within 1s");
        drop(listener);
        let why = check("127.0.0.1", port, "", Duration::from_secs(1)).await.unwrap_err();
        let address = format!("127.0.0.1:{port}");
        assert_eq!(
            why.to_string(),
            format!("error: failed to connect service at {address:?}: dial tcp {address}: connect: connection refused")
        );
    }

    #[test]
    fn long_names_are_framed() {
        let name = "s".repeat(300);
        let framed = question(&name);
        assert_eq!(framed[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
    }
}
