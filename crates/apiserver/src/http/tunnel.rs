//! Where the agent of another machine dials in (`GET /trainyard/tunnel`): its user says which node's connection this is.

use super::Server;
use super::answer::Body;
use super::handle::Ask;
use super::node_life::NodeLife;
use super::upgrade;
use http::{Method, Response, header};
use resource::status::Status;
use std::sync::Arc;

pub(super) const PATH: &str = "/trainyard/tunnel";
/// The header in which an agent says what version of the program it is.
const VERSION: &str = "trainyard-version";

impl Server {
    /// # Errors
    /// 403 for all but agents of nodes that there are, 426 for an agent of another version, 501 where no agent may dial in.
    pub(super) fn tunnel(self: &Arc<Self>, ask: &Ask) -> Result<Response<Body>, Status> {
        let Some(node) = ask.user.node().map(str::to_owned) else {
            let why = format!(
                "forbidden: User {:?} is not the agent of a node, which alone may open {PATH:?}",
                ask.user.name
            );
            return Err(Status::new(403, "Forbidden", why));
        };
        let Some(tunnels) = self.tunnels.clone() else {
            return Err(Status::new(501, "NotImplemented", "this control plane takes no nodes on other machines"));
        };
        if ask.method != Method::GET {
            return Err(Status::bad_request("a tunnel is opened by GET"));
        }
        let protocol = tunnels.protocol();
        if !upgrade::wanted(ask, protocol) {
            let theirs = ask.header(header::UPGRADE).unwrap_or("nothing");
            let version = ask.header(VERSION).unwrap_or("unknown");
            let why = format!(
                "the agent of node {node:?} (trainyard {version}) speaks {theirs}, this control plane (trainyard {}) speaks \
                 {protocol}: run the same version of trainyard on both machines",
                env!("CARGO_PKG_VERSION")
            );
            tracing::warn!("{why}");
            return Err(Status::new(426, "UpgradeRequired", why));
        }
        let Some(life) = NodeLife::of(&self.core, &ask.user) else {
            return Err(Status::new(403, "Forbidden", format!("forbidden: there is no Node {node:?} to connect")));
        };
        let server = Arc::clone(self);
        // What the new Node of a name is asked is not for the agent of the old one.
        upgrade::to_tunnel(ask, protocol, move |io| server.while_it_lives(Some(life), tunnels.serve(node, io)))
    }
}
