//! Who is signed in: codes that are good for one sign-in, and sessions with the token of their user.
//!
//! A session is named by two halves: one is in a cookie that scripts cannot read, the other in the
//! page's own storage, which comes back as a header. Cookies do not tell the ports of 127.0.0.1 apart, so a server of another user on
//! another port is sent the first half; it never sees the second. Only the hashes of both are kept.
//!
//! Tokens stay in memory. Sessions of a control plane's own administrator, whose token lies in its home anyway, outlive a restart: the
//! hashes of their halves are in a file of that home (`kept`).

use crate::kept::{Kept, KeptFile};
use crate::reasons::Reasons;
use crate::rights::Rights;
use client::Cluster;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a code can be used.
pub const CODE_LASTS: Duration = Duration::from_secs(60);
/// How long a session stays without a request.
pub const IDLE_MAX: Duration = Duration::from_secs(12 * 3600);
/// The most codes and sessions; beyond it the ones that were unused longest go.
const CODES_MAX: usize = 100;
const SESSIONS_MAX: usize = 1000;

pub(crate) type Hash = [u8; 32];

/// A secret of 256 bits in hexadecimal, which is shown to its owner once.
pub(crate) struct Secret(String);

impl Secret {
    /// Errors: the system gives no random bytes.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub fn shown(&self) -> &str {
        &self.0
    }
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text.as_bytes()).into()
}

/// A bearer token of an API server.
#[derive(Clone)]
pub struct BearerToken(String);

impl BearerToken {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// As a request sends it. To be given to an HTTP client alone.
    pub fn exposed(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

/// Somebody who is signed in.
pub(crate) struct Session {
    pub user: String,
    /// Asks the API server as this user.
    pub cluster: Cluster,
    pub rights: Rights,
    pub reasons: Reasons,
    half: Hash,
    is_own: bool,
    is_over: AtomicBool,
}

impl Session {
    fn new(accepted: Accepted, half: Hash) -> Self {
        let Accepted { user, cluster, is_own } = accepted;
        let (rights, reasons) = (Rights::default(), Reasons::default());
        Self { user, cluster, rights, reasons, half, is_own, is_over: false.into() }
    }

    /// Whether it has ended: what still goes on for it ends, too.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// A user whose token the API server has accepted.
#[derive(Clone)]
pub(crate) struct Accepted {
    pub user: String,
    pub cluster: Cluster,
    /// It is the token of the control plane's own administrator.
    pub is_own: bool,
}

struct Code {
    accepted: Accepted,
    made: Instant,
}

struct Held {
    session: Arc<Session>,
    used: Instant,
}

#[derive(Default)]
struct Inner {
    codes: HashMap<Hash, Code>,
    sessions: HashMap<Hash, Held>,
}

/// All codes and sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    inner: Mutex<Inner>,
    /// Where sessions of the control plane's own administrator are kept.
    file: Option<KeptFile>,
}

/// The two halves of a new session's name.
pub(crate) struct Halves {
    pub cookie: Secret,
    pub header: Secret,
}

impl Sessions {
    /// The sessions that a file has kept, all of this administrator. One that cannot be read has none.
    pub fn restored(file: KeptFile, own: &Accepted, now: Instant) -> Self {
        let held = file.read().into_iter().map(|Kept { cookie, half }| {
            let session = Session::new(own.clone(), half);
            (cookie, Held { session: Arc::new(session), used: now })
        });
        let sessions = held.take(SESSIONS_MAX).collect();
        Self { inner: Mutex::new(Inner { sessions, ..Inner::default() }), file: Some(file) }
    }

    /// Writes down the sessions that outlive a restart.
    fn keep(&self, inner: &Inner) {
        let Some(file) = &self.file else { return };
        let own = inner.sessions.iter().filter(|(_, held)| held.session.is_own);
        file.write(own.map(|(cookie, held)| Kept { cookie: *cookie, half: held.session.half }).collect());
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A code with which this user can sign in, once, within [`CODE_LASTS`].
    ///
    /// Errors: the system gives no random bytes.
    pub fn code(&self, accepted: Accepted, now: Instant) -> Result<Secret, getrandom::Error> {
        let secret = Secret::new()?;
        let mut inner = self.inner();
        inner.codes.retain(|_, code| now.saturating_duration_since(code.made) < CODE_LASTS);
        if inner.codes.len() >= CODES_MAX
            && let Some(oldest) = inner.codes.iter().min_by_key(|(_, code)| code.made).map(|(hash, _)| *hash)
        {
            inner.codes.remove(&oldest);
        }
        inner.codes.insert(hash(secret.shown()), Code { accepted, made: now });
        Ok(secret)
    }

    /// Whose code this is. It is used up by that.
    pub fn redeem(&self, code: &str, now: Instant) -> Option<Accepted> {
        let code = self.inner().codes.remove(&hash(code))?;
        (now.saturating_duration_since(code.made) < CODE_LASTS).then_some(code.accepted)
    }

    /// Begins a session.
    ///
    /// Errors: the system gives no random bytes.
    pub fn begin(&self, accepted: Accepted, now: Instant) -> Result<Halves, getrandom::Error> {
        let halves = Halves { cookie: Secret::new()?, header: Secret::new()? };
        let session = Arc::new(Session::new(accepted, hash(halves.header.shown())));
        let mut inner = self.inner();
        inner.sessions.retain(|_, held| now.saturating_duration_since(held.used) < IDLE_MAX);
        if inner.sessions.len() >= SESSIONS_MAX
            && let Some(oldest) = inner.sessions.iter().min_by_key(|(_, held)| held.used).map(|(hash, _)| *hash)
        {
            inner.sessions.remove(&oldest);
        }
        inner.sessions.insert(hash(halves.cookie.shown()), Held { session, used: now });
        self.keep(&inner);
        Ok(halves)
    }

    /// The session of these halves. Hashes are compared, so that the time it takes says nothing about the halves.
    pub fn find(&self, cookie: &str, header: &str, now: Instant) -> Option<Arc<Session>> {
        let mut inner = self.inner();
        let held = inner.sessions.get_mut(&hash(cookie))?;
        let is_fresh = now.saturating_duration_since(held.used) < IDLE_MAX;
        (is_fresh && held.session.half == hash(header) && !held.session.is_over()).then(|| {
            held.used = now;
            held.session.clone()
        })
    }

    /// Ends the session with this cookie.
    pub fn end(&self, cookie: &str) {
        let mut inner = self.inner();
        if let Some(held) = inner.sessions.remove(&hash(cookie)) {
            held.session.end();
            self.keep(&inner);
        }
    }
}
