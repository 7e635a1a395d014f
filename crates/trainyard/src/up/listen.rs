//! Where the servers listen, and at which address pods reach them.

use super::UpError;
use crate::pki;
use client::Home;
use client::codes::ErrorCode;
use grammar::{ListenAt, UpArgs};
use operator::Controllers;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use tokio::net::TcpListener;

/// Binds the address; where the port is left open (`:0`), the one of the last start if it is free, so that kubeconfigs
/// in use go on working.
pub(super) async fn listen(asked: &str, home: &Home) -> Result<(TcpListener, SocketAddr), UpError> {
    let address: SocketAddr = asked.parse().map_err(|_| {
        UpError::Usage(
            ErrorCode::FlagRefused,
            format!("--listen {asked:?} is not ADDRESS:PORT (127.0.0.1:6443, [::1]:0)"),
        )
    })?;
    if !address.ip().is_loopback() {
        node::say!(
            "warning: {address} can be reached from other machines; anybody who has the token can start processes here"
        );
    }
    bind(address, &home.root().join("port")).await
}

/// Where the status server is to listen. Unless somebody says so, there is one only where pods run and TrainJobs are
/// made into them.
pub(super) fn reports_to(args: &UpArgs, controllers: &Controllers) -> Option<SocketAddr> {
    match args.status_server {
        Some(ListenAt::Address(address)) => Some(address),
        Some(ListenAt::Nowhere) => None,
        None if args.no_node || !controllers.wants_trainer() => None,
        None => Some(SocketAddr::from(([127, 0, 0, 1], 0))),
    }
}

/// Where the dashboard is to listen. It speaks HTTP without TLS, so it is for browsers of this machine.
///
/// Errors: an address that other machines could reach.
pub(super) fn dashboard_at(args: &UpArgs) -> Result<Option<SocketAddr>, UpError> {
    match args.dashboard {
        Some(ListenAt::Nowhere) => Ok(None),
        None => Ok(Some(SocketAddr::from(([127, 0, 0, 1], 0)))),
        Some(ListenAt::Address(address)) if address.ip().is_loopback() => Ok(Some(address)),
        Some(ListenAt::Address(address)) => Err(UpError::Usage(
            ErrorCode::FlagRefused,
            format!(
                "--dashboard {address} can be reached from other machines, and the dashboard speaks HTTP without TLS; choose a loopback \
                 address (127.0.0.1:0), and forward its port: ssh -L {0}:127.0.0.1:{0} HOST",
                address.port()
            ),
        )),
    }
}

/// The address at which pods reach a server that listens here.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from(([127, 0, 0, 1], address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port())),
        _ => address,
    }
}

/// Binds an address; where its port is left open, the port that is remembered in this file if it is free, which is then
/// the one in use.
pub(super) async fn bind(address: SocketAddr, remembered: &Path) -> Result<(TcpListener, SocketAddr), UpError> {
    let failed = |source| UpError::Listen { address: address.to_string(), source };
    let last = std::fs::read_to_string(remembered).ok().and_then(|text| text.trim().parse::<u16>().ok());
    let listener = match last.filter(|_| address.port() == 0) {
        Some(port) => match TcpListener::bind((address.ip(), port)).await {
            Ok(listener) => listener,
            Err(error) => {
                let fresh = TcpListener::bind(address).await.map_err(failed)?;
                node::say!(
                    "warning: port {port} of the last start cannot be used ({error}); clients of then do not reach this one"
                );
                fresh
            }
        },
        None => TcpListener::bind(address).await.map_err(failed)?,
    };
    let bound = listener.local_addr().map_err(failed)?;
    pki::write_private(remembered, &bound.port().to_string())?;
    Ok((listener, bound))
}
