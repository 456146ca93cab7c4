//! May etcd be bootstrapped on the chosen node? Talos checks only the node that it is asked on: a second control plane with an
//! empty disk would gladly become a second cluster. So every control plane is looked at first.
//!
//! [`decide`] is pure; [`observe`] looks at one node, [`bootstrap_guard`] does both.

use std::fmt;

use super::{
    error::{ClientError, ErrorClass},
    probe::{Look, Node, NodeState, Owner},
    session::Client,
};

/// Where etcd keeps its data on a Talos node.
const DATA: &str = "/var/lib/etcd";

/// What is known of etcd on one control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// In maintenance mode: no config, so no etcd.
    Maintenance,
    /// Not asked: the caller itself saw it in maintenance mode in this run and gave it its first config.
    Fresh,
    /// Configured, and without etcd's data. `state` is the service's.
    Empty { state: String },
    /// etcd has data here, or runs.
    HasData { state: String },
    /// It has no service etcd: a worker.
    NoEtcd,
    /// Of another cluster.
    Foreign,
    /// It did not answer, or not fully. What it holds is not known.
    Unanswered { why: String },
}

/// One control plane and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub node: String,
    pub observation: Observation,
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The chosen node is not among the control planes.
    NotListed { chosen: String },
    /// etcd lives on another node already: bootstrapping here would make a second cluster.
    Elsewhere { nodes: Vec<String> },
    /// What these nodes hold is not known.
    Unanswered { nodes: Vec<(String, String)> },
    /// These nodes belong to another cluster.
    Foreign { nodes: Vec<String> },
    /// The chosen node can't yet: it does not answer, or has no config.
    ChosenNotReady { why: String },
    /// The chosen node is a worker.
    ChosenIsWorker,
}

/// What [`decide`] decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nobody has etcd data: go.
    Bootstrap,
    /// The chosen node has etcd data: it was done before.
    AlreadyDone,
    Refuse(Refusal),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed { chosen } => write!(f, "{chosen} is not one of the control planes"),
            Self::Elsewhere { nodes } => write!(
                f,
                "etcd has data on {} already: bootstrapping another node would make a second cluster",
                nodes.join(", ")
            ),
            Self::Unanswered { nodes } => {
                let told: Vec<String> = nodes.iter().map(|(node, why)| format!("{node} ({why})")).collect();
                write!(f, "whether etcd has data on these control planes is not known: {}", told.join(", "))
            }
            Self::Foreign { nodes } => {
                write!(f, "these nodes belong to another cluster: {}", nodes.join(", "))
            }
            Self::ChosenNotReady { why } => write!(f, "the chosen node is not ready: {why}"),
            Self::ChosenIsWorker => f.write_str("the chosen node runs no etcd service: it is a worker"),
        }
    }
}

impl Refusal {
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NotListed { .. } => "name a control plane",
            Self::Elsewhere { .. } => {
                "if that is this cluster, nothing is to be done; if the data is old, reset those nodes first"
            }
            Self::Unanswered { .. } => {
                "wait until they answer; leave a node that is gone for good out of the list of control planes"
            }
            Self::Foreign { .. } => "check the addresses; a node of another cluster has to be reset first",
            Self::ChosenNotReady { .. } => "apply its config and wait until it answers",
            Self::ChosenIsWorker => "choose a control plane",
        }
    }

    /// True when the same question may be answered otherwise a little later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unanswered { .. } | Self::ChosenNotReady { .. })
    }
}

/// Pure. `all` are all control planes of the cluster, the chosen one among them.
pub fn decide(chosen: &str, all: &[Seen]) -> Decision {
    let Some(own) = all.iter().find(|seen| seen.node == chosen) else {
        return Decision::Refuse(Refusal::NotListed { chosen: chosen.to_owned() });
    };
    let others = || all.iter().filter(|seen| seen.node != chosen);
    let foreign: Vec<String> = all
        .iter()
        .filter(|seen| seen.observation == Observation::Foreign)
        .map(|seen| seen.node.clone())
        .collect();
    if !foreign.is_empty() {
        return Decision::Refuse(Refusal::Foreign { nodes: foreign });
    }
    // With data on the chosen node the question is settled: the others join it or already did.
    if matches!(own.observation, Observation::HasData { .. }) {
        return Decision::AlreadyDone;
    }
    let elsewhere: Vec<String> = others()
        .filter(|seen| matches!(seen.observation, Observation::HasData { .. }))
        .map(|seen| seen.node.clone())
        .collect();
    if !elsewhere.is_empty() {
        return Decision::Refuse(Refusal::Elsewhere { nodes: elsewhere });
    }
    match &own.observation {
        Observation::Empty { .. } => {}
        Observation::NoEtcd => return Decision::Refuse(Refusal::ChosenIsWorker),
        Observation::Unanswered { why } => {
            return Decision::Refuse(Refusal::ChosenNotReady { why: why.clone() });
        }
        _ => {
            let why = "it has no config yet".to_owned();
            return Decision::Refuse(Refusal::ChosenNotReady { why });
        }
    }
    let unanswered: Vec<(String, String)> = others()
        .filter_map(|seen| match &seen.observation {
            Observation::Unanswered { why } => Some((seen.node.clone(), why.clone())),
            _ => None,
        })
        .collect();
    if unanswered.is_empty() {
        Decision::Bootstrap
    } else {
        Decision::Refuse(Refusal::Unanswered { nodes: unanswered })
    }
}

/// Looks at every control plane, all at once, and decides. What was seen comes along, for a report.
pub async fn bootstrap_guard(control_planes: &[Node], chosen: &Node) -> (Decision, Vec<Seen>) {
    let looks: Vec<_> = control_planes
        .iter()
        .cloned()
        .map(|node| {
            tokio::spawn(async move {
                Seen { node: node.address().to_string(), observation: observe(&node).await }
            })
        })
        .collect();
    let mut all = Vec::with_capacity(looks.len());
    for (look, node) in looks.into_iter().zip(control_planes) {
        all.push(look.await.unwrap_or_else(|error| Seen {
            node: node.address().to_string(),
            observation: Observation::Unanswered { why: error.to_string() },
        }));
    }
    (decide(&chosen.address().to_string(), &all), all)
}

/// etcd on one control plane.
pub async fn observe(node: &Node) -> Observation {
    match node.look().await {
        Look::Maintenance(..) => Observation::Maintenance,
        Look::Nothing(NodeState::Configured { owner: Owner::Foreign, .. }) => Observation::Foreign,
        Look::Nothing(state) => Observation::Unanswered { why: state.to_string() },
        Look::Ours(client) => look_at_etcd(&client)
            .await
            .unwrap_or_else(|error| Observation::Unanswered { why: error.to_string() }),
    }
}

async fn look_at_etcd(client: &Client) -> Result<Observation, ClientError> {
    let services = client.service_list().await?;
    let Some(etcd) = services.into_iter().find(|info| info.id == "etcd") else {
        return Ok(Observation::NoEtcd);
    };
    let state = etcd.state;
    // A running etcd is one even if its folder could not be read.
    if state == "Running" || has_data(client).await? {
        return Ok(Observation::HasData { state });
    }
    Ok(Observation::Empty { state })
}

async fn has_data(client: &Client) -> Result<bool, ClientError> {
    let missing = |text: &str| text.contains("no such file or directory");
    let files = match client.list(DATA).await {
        Err(error) if missing(error.message()) => return Ok(false),
        other => other?,
    };
    for file in &files {
        let is_root = file.relative_name == "." || file.name == DATA;
        if !file.error.is_empty() {
            if missing(&file.error) {
                continue;
            }
            let message = format!("{}: {}", file.name, file.error);
            return Err(ClientError::new("List", client.node(), ErrorClass::Other, message));
        }
        if !is_root {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(observations: &[Observation]) -> Vec<Seen> {
        observations
            .iter()
            .enumerate()
            .map(|(index, observation)| Seen { node: format!("n{index}"), observation: observation.clone() })
            .collect()
    }

    fn unanswered(why: &str) -> Observation {
        Observation::Unanswered { why: why.to_owned() }
    }

    #[test]
    fn the_table_of_decisions() {
        use Observation::{Foreign, Fresh, Maintenance, NoEtcd};
        let empty = || Observation::Empty { state: "Preparing".to_owned() };
        let data = || Observation::HasData { state: "Running".to_owned() };
        let refuse = Decision::Refuse;
        let elsewhere = |nodes: &[&str]| {
            refuse(Refusal::Elsewhere { nodes: nodes.iter().map(|n| (*n).to_owned()).collect() })
        };
        let not_ready = |why: &str| refuse(Refusal::ChosenNotReady { why: why.to_owned() });
        let table: Vec<(Vec<Observation>, Decision)> = vec![
            (vec![empty()], Decision::Bootstrap),
            (vec![empty(), empty(), empty()], Decision::Bootstrap),
            (vec![empty(), Maintenance, Fresh], Decision::Bootstrap),
            (vec![data()], Decision::AlreadyDone),
            (vec![data(), data(), empty()], Decision::AlreadyDone),
            (vec![data(), unanswered("x"), empty()], Decision::AlreadyDone),
            (vec![empty(), data(), empty()], elsewhere(&["n1"])),
            // Data elsewhere outweighs a node that does not answer: the message names what is sure.
            (vec![empty(), data(), unanswered("x")], elsewhere(&["n1"])),
            (vec![unanswered("off"), data(), data()], elsewhere(&["n1", "n2"])),
            (vec![Maintenance, data()], elsewhere(&["n1"])),
            (
                vec![empty(), unanswered("refused"), empty()],
                refuse(Refusal::Unanswered { nodes: vec![("n1".to_owned(), "refused".to_owned())] }),
            ),
            (vec![unanswered("off"), empty()], not_ready("off")),
            (vec![Maintenance, empty()], not_ready("it has no config yet")),
            (vec![Fresh, empty()], not_ready("it has no config yet")),
            (vec![NoEtcd, empty()], refuse(Refusal::ChosenIsWorker)),
            (vec![empty(), Foreign], refuse(Refusal::Foreign { nodes: vec!["n1".to_owned()] })),
            (vec![data(), Foreign], refuse(Refusal::Foreign { nodes: vec!["n1".to_owned()] })),
        ];
        for (observations, expected) in table {
            assert_eq!(decide("n0", &seen(&observations)), expected, "{observations:?}");
        }
        assert_eq!(decide("n9", &seen(&[empty()])), refuse(Refusal::NotListed { chosen: "n9".to_owned() }));
    }

    /// Over every combination of three nodes: never a bootstrap where etcd may live elsewhere.
    #[test]
    fn no_combination_makes_a_second_cluster() {
        let kinds = [
            Observation::Maintenance,
            Observation::Fresh,
            Observation::Empty { state: "Waiting".to_owned() },
            Observation::HasData { state: "Running".to_owned() },
            Observation::NoEtcd,
            Observation::Foreign,
            unanswered("x"),
        ];
        let mut gone = 0;
        for a in &kinds {
            for b in &kinds {
                for c in &kinds {
                    let all = seen(&[a.clone(), b.clone(), c.clone()]);
                    if decide("n0", &all) == Decision::Bootstrap {
                        gone += 1;
                        assert!(matches!(a, Observation::Empty { .. }));
                        for other in [b, c] {
                            let unsafe_ = matches!(
                                other,
                                Observation::HasData { .. }
                                    | Observation::Unanswered { .. }
                                    | Observation::Foreign
                            );
                            assert!(!unsafe_, "{all:?}");
                        }
                    }
                }
            }
        }
        assert_eq!(gone, 16);
    }
}
