//! The dashboard of this machine's control plane.

use client::{ApiServer, Home};
use dashboard::{BearerToken, Dashboard, HostNames, Index, Own, Settings};
use driver::Feed;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What a dashboard needs to know of the control plane that it is a part of.
pub(crate) struct Of {
    pub home: Home,
    /// The API server's URL.
    pub server: String,
    /// Of its certificate, PEM.
    pub authority: String,
    /// Its administrator's.
    pub token: String,
    /// All objects, for the table of jobs.
    pub feed: Feed,
}

/// Serves it until `stop` is cancelled.
pub(crate) async fn serve(of: Of, listener: TcpListener, at: SocketAddr, stop: CancellationToken) {
    let Of { home, server, authority, token, feed } = of;
    let port = at.port();
    let names = [at.to_string(), format!("localhost:{port}"), format!("127.0.0.1:{port}")];
    let flags = match Home::find(None) {
        Ok(default) if default.root() == home.root() => String::new(),
        _ => format!(" --home {}", api::shell::quoted(&home.root().to_string_lossy())),
    };
    let settings = Settings {
        names: HostNames(names.into()),
        is_secure: false,
        port,
        own: Some(Own {
            user: resource::User::admin().name,
            token: BearerToken::new(token),
            file: home.root().join("dashboard-sessions"),
        }),
        server: ApiServer {
            url: server,
            authority: Some(authority),
            home: Some(home.root().to_owned()),
            flags,
            kubectl_flags: format!(" --kubeconfig {}", api::shell::quoted(&home.kubeconfig().to_string_lossy())),
        },
    };
    let index = Index::default();
    let following = index.clone().follow(feed);
    let serving = async {
        let dashboard = Dashboard::new(settings, index).await.map_err(|error| api::error_chain(&error))?;
        dashboard.serve(listener, stop).await.map_err(|error| error.to_string())
    };
    tokio::select! {
        () = following => {}
        done = serving => {
            if let Err(error) = done {
                node::say!("the dashboard has ended: {error}; start the control plane again to have it back");
            }
        }
    }
}
