//! Asks a server while a shell waits for completions.

use std::sync::mpsc;
use std::time::Duration;

/// How long a server has to tell names, so that all is done in 200 ms.
const PATIENCE: Duration = Duration::from_millis(150);

/// What is asked of a server, if it answers within [`PATIENCE`].
pub(crate) fn soon<T: Send + 'static, F: Future<Output = T>>(asked: impl FnOnce() -> F + Send + 'static) -> Option<T> {
    let (send, receive) = mpsc::channel();
    // a thread of its own: credentials may come from a program, which blocks
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // the shell that asked may be gone
        let _ = send.send(runtime.ok().map(|runtime| runtime.block_on(asked())));
    });
    receive.recv_timeout(PATIENCE).ok().flatten()
}
