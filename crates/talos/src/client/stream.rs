//! Calls that answer with a stream: events, resources, logs, the kernel's messages, the node's own health check.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tonic::Streaming;

use super::{
    address::NodeAddress,
    error::{ClientError, from_status},
    session::Client,
};
use crate::api::{
    EVENT_TYPE_PREFIX, cluster, common,
    cosi::resource::{self, EventType},
    machine,
};

/// Messages of one call, as they come. Dropping it ends the call.
pub struct Messages<T> {
    operation: &'static str,
    node: NodeAddress,
    inner: Streaming<T>,
}

impl<T> Messages<T> {
    /// `None` at the orderly end.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        self.inner.message().await.map_err(|status| from_status(self.operation, &self.node, &status))
    }
}

/// What a node tells of itself.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// The stream stands: what happens from here on is told.
    Hello,
    Sequence(machine::SequenceEvent),
    Phase(machine::PhaseEvent),
    Task(machine::TaskEvent),
    ServiceState(machine::ServiceStateEvent),
    ConfigLoadError(machine::ConfigLoadErrorEvent),
    ConfigValidationError(machine::ConfigValidationErrorEvent),
    Address(machine::AddressEvent),
    MachineStatus(machine::MachineStatusEvent),
    Restart(machine::RestartEvent),
    /// Of a Talos newer than this program.
    Unknown {
        type_url: String,
    },
}

impl NodeEvent {
    /// A payload that does not decode counts as unknown: one odd event is no reason to lose the rest.
    pub fn decode(event: &machine::Event) -> Self {
        let Some(data) = event.data.as_ref().filter(|data| !data.type_url.is_empty()) else {
            return Self::Hello;
        };
        let unknown = || Self::Unknown { type_url: data.type_url.clone() };
        fn read<T: Message + Default>(bytes: &[u8], wrap: fn(T) -> NodeEvent) -> Option<NodeEvent> {
            T::decode(bytes).ok().map(wrap)
        }
        let bytes = data.value.as_slice();
        match data.type_url.strip_prefix(EVENT_TYPE_PREFIX).unwrap_or_default() {
            "SequenceEvent" => read(bytes, Self::Sequence),
            "PhaseEvent" => read(bytes, Self::Phase),
            "TaskEvent" => read(bytes, Self::Task),
            "ServiceStateEvent" => read(bytes, Self::ServiceState),
            "ConfigLoadErrorEvent" => read(bytes, Self::ConfigLoadError),
            "ConfigValidationErrorEvent" => read(bytes, Self::ConfigValidationError),
            "AddressEvent" => read(bytes, Self::Address),
            "MachineStatusEvent" => read(bytes, Self::MachineStatus),
            "RestartEvent" => read(bytes, Self::Restart),
            _ => None,
        }
        .unwrap_or_else(unknown)
    }
}

/// A change of a watched resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceEvent {
    pub kind: EventType,
    pub resource: Option<resource::Resource>,
    pub error: Option<String>,
}

/// Changes of watched resources, one by one.
pub struct ResourceEvents {
    messages: Messages<resource::WatchResponse>,
    ready: std::collections::VecDeque<resource::Event>,
}

impl ResourceEvents {
    pub async fn next(&mut self) -> Result<Option<ResourceEvent>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                let kind = event.event_type();
                return Ok(Some(ResourceEvent { kind, resource: event.resource, error: event.error }));
            }
            match self.messages.next().await? {
                Some(batch) => self.ready.extend(batch.event),
                None => return Ok(None),
            }
        }
    }
}

/// Log lines and such, in pieces as the node sends them.
pub struct Chunks(Messages<common::Data>);

impl Chunks {
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        Ok(self.0.next().await?.map(|data| data.bytes))
    }

    /// All that is there. Only for a call that does not follow.
    pub async fn collect(mut self) -> Result<Vec<u8>, ClientError> {
        let mut all = Vec::new();
        while let Some(part) = self.next().await? {
            all.extend_from_slice(&part);
        }
        Ok(all)
    }
}

impl Client {
    /// Events from now on, after the last `tail` (-1: all that the node remembers). With `actor`, only of that request.
    pub async fn events(
        &self,
        tail: i32,
        actor: Option<&str>,
    ) -> Result<Messages<machine::Event>, ClientError> {
        let request = machine::EventsRequest {
            tail_events: tail,
            with_actor_id: actor.unwrap_or_default().to_owned(),
            ..Default::default()
        };
        let mut client = self.machine();
        self.messages("Events", client.events(self.request(request)).await)
    }

    /// One resource (with `id`) or all of a kind: what there is now, then every change.
    pub async fn watch(
        &self,
        namespace: &str,
        kind: &str,
        id: Option<&str>,
    ) -> Result<ResourceEvents, ClientError> {
        let options = resource::WatchOptions { bootstrap_contents: id.is_none(), ..Default::default() };
        let request = resource::WatchRequest {
            namespace: namespace.to_owned(),
            r#type: kind.to_owned(),
            id: id.map(str::to_owned),
            options: Some(options),
            api_version: 1,
        };
        let mut client = self.state();
        let messages = self.messages("cosi Watch", client.watch(self.request(request)).await)?;
        Ok(ResourceEvents { messages, ready: Default::default() })
    }

    /// The log of a service; `tail` limits it to the last lines (-1: all).
    pub async fn logs(&self, service: &str, follow: bool, tail: i32) -> Result<Chunks, ClientError> {
        let request = machine::LogsRequest {
            namespace: "system".to_owned(),
            id: service.to_owned(),
            driver: common::ContainerDriver::Containerd.into(),
            follow,
            tail_lines: tail,
        };
        let mut client = self.machine();
        self.messages("Logs", client.logs(self.request(request)).await).map(Chunks)
    }

    /// The kernel's messages; with `tail`, only those from now on.
    pub async fn dmesg(&self, follow: bool, tail: bool) -> Result<Chunks, ClientError> {
        let mut client = self.machine();
        self.messages("Dmesg", client.dmesg(self.request(machine::DmesgRequest { follow, tail })).await)
            .map(Chunks)
    }

    /// Talos' own check of the cluster, as sentences; it ends well when all is well.
    pub async fn health_check(
        &self,
        nodes: cluster::ClusterInfo,
        limit: Duration,
    ) -> Result<Messages<cluster::HealthCheckProgress>, ClientError> {
        let request = cluster::HealthCheckRequest {
            wait_timeout: prost_types::Duration::try_from(limit).ok(),
            cluster_info: Some(nodes),
        };
        let mut client = self.cluster();
        self.messages("HealthCheck", client.health_check(self.request(request)).await)
    }

    fn messages<T>(
        &self,
        operation: &'static str,
        answer: Result<tonic::Response<Streaming<T>>, tonic::Status>,
    ) -> Result<Messages<T>, ClientError> {
        let inner = answer.map_err(|status| self.failed(operation, &status))?.into_inner();
        Ok(Messages { operation, node: self.node().clone(), inner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(type_url: &str, value: Vec<u8>) -> machine::Event {
        let data = prost_types::Any { type_url: type_url.to_owned(), value };
        machine::Event { data: Some(data), ..Default::default() }
    }

    #[test]
    fn events_decode_by_their_type_url() {
        let state =
            machine::ServiceStateEvent { service: "etcd".to_owned(), action: 3, ..Default::default() };
        let known = event("talos/runtime/machine.ServiceStateEvent", state.encode_to_vec());
        assert_eq!(NodeEvent::decode(&known), NodeEvent::ServiceState(state.clone()));
        assert_eq!(NodeEvent::decode(&event("", Vec::new())), NodeEvent::Hello);
        assert_eq!(NodeEvent::decode(&machine::Event::default()), NodeEvent::Hello);
        // Neither another prefix, nor a new name, nor a payload that does not decode stops a reader.
        for odd in [
            event("type.googleapis.com/machine.ServiceStateEvent", state.encode_to_vec()),
            event("talos/runtime/machine.NewEvent", Vec::new()),
            event("talos/runtime/machine.ServiceStateEvent", vec![0xff]),
        ] {
            assert!(matches!(NodeEvent::decode(&odd), NodeEvent::Unknown { .. }));
        }
    }
}
