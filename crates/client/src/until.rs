//! Waits for an object.

use crate::ClientError;
use futures::{StreamExt, TryStreamExt};
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, watch_object};
use std::time::Duration;

/// How long a watch rests that could not be begun.
const AGAIN: Duration = Duration::from_millis(200);

/// Waits until an object says what is asked for. The object is `None` where there is none.
///
/// # Errors
/// None so far: a watch that breaks is begun again.
pub async fn until<T>(
    api: Api<DynamicObject>,
    name: &str,
    mut asked: impl FnMut(Option<&DynamicObject>) -> Option<T>,
) -> Result<T, ClientError> {
    let mut states = watch_object(api.clone(), name).boxed();
    loop {
        match states.try_next().await {
            Ok(Some(state)) => {
                if let Some(answer) = asked(state.as_ref()) {
                    return Ok(answer);
                }
            }
            Ok(None) => states = watch_object(api.clone(), name).boxed(),
            // the watch is begun again by itself
            Err(watcher::Error::WatchFailed(_) | watcher::Error::InitialListFailed(_)) => {
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => {
                tracing::debug!(%error, "watching an object; going on");
            }
        }
    }
}
