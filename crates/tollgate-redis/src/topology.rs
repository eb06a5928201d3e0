//! Which server a question goes to.
//!
//! | topology | where to | when that changes |
//! |---|---|---|
//! | one server | the address of the URL | never; a name is looked up for every connection |
//! | Sentinel | whom most sentinels call the primary and who says so itself | its links are lost, or it says `READONLY`; every new connection asks again, and so does each there is every few seconds |
//! | Cluster | the owner of the slot, by a map | `MOVED` and `ASK` lead the way at once, and the map is read anew |

use std::fmt;
use std::sync::{Arc, Weak};

use crate::connect::{Connector, Target};
use crate::failure::Failure;
use crate::node::Node;
use crate::shared::Shared;
use crate::url::{Place, RedisUrl};
use crate::wire::Wire;

mod cluster;
mod sentinel;

pub(crate) use cluster::Cluster;
use sentinel::Sentinels;

/// How a node's server is found, anew for every connection.
#[derive(Clone)]
pub(crate) enum Locator {
    /// It is here.
    Fixed(Target),
    /// It is here, one of a cluster: a replica says itself where its primary is.
    InCluster(Target),
    /// Sentinels know.
    Sentinels(Arc<Sentinels>),
}

impl Locator {
    /// Connects to the server, and says where it is.
    pub(crate) async fn connect(&self, connector: &Connector) -> Result<(Wire, Target), Failure> {
        match self {
            Self::Fixed(target) | Self::InCluster(target) => {
                Ok((connector.connect(target).await?, target.clone()))
            }
            Self::Sentinels(sentinels) => sentinels.connect(connector).await,
        }
    }

    /// Whether the server is elsewhere by now, though the one at `known` does not say so.
    pub(crate) async fn has_moved(&self, known: &Target, connector: &Connector) -> bool {
        match self {
            Self::Fixed(_) | Self::InCluster(_) => false,
            Self::Sentinels(sentinels) => sentinels.name_another(known, connector).await,
        }
    }

    /// The host of a server that is always at the same.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Self::Fixed(Target::Address(address)) | Self::InCluster(Target::Address(address)) => {
                Some(&address.host)
            }
            _ => None,
        }
    }

    /// Whether a replica at this place is as good as a primary.
    pub(crate) fn may_be_replica(&self) -> bool {
        matches!(self, Self::InCluster(_))
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(target) | Self::InCluster(target) => target.fmt(f),
            Self::Sentinels(sentinels) => sentinels.fmt(f),
        }
    }
}

/// The servers of one store.
pub(crate) enum Topology {
    /// One server at a time.
    Single(Arc<Node>),
    /// Many, each with some of the slots.
    Cluster(Arc<Cluster>),
}

impl Topology {
    pub(crate) fn start(url: &RedisUrl, shared: &Arc<Shared>) -> Self {
        let single = |locator| Self::Single(Node::start(shared, locator, &Weak::new()));
        match &url.place {
            Place::Server(address) => single(Locator::Fixed(Target::Address(address.clone()))),
            Place::Socket(path) => single(Locator::Fixed(Target::Socket(path.clone()))),
            Place::Sentinels { addresses, service, login } => {
                let connector = shared.connector.with_login(login.clone());
                let sentinels = Sentinels::new(addresses.clone(), service.clone(), connector);
                single(Locator::Sentinels(Arc::new(sentinels)))
            }
            Place::Cluster(addresses) => Self::Cluster(Cluster::start(addresses.clone(), shared)),
        }
    }

    /// Sends off what has gathered.
    pub(crate) fn go(&self) {
        match self {
            Self::Single(node) => node.go(),
            Self::Cluster(cluster) => cluster.go(),
        }
    }

    /// How many servers there are, and how many of them are down.
    pub(crate) fn servers(&self) -> (usize, usize) {
        match self {
            Self::Single(node) => (1, usize::from(!node.is_up())),
            Self::Cluster(cluster) => cluster.servers(),
        }
    }
}
