//! `butler-lb drain` and `butler-lb reload`: a question to the running balancer, and its answer.

use super::{Exit, output, socket};
use butler_lb::admin::{Answer, ClientError, request};
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(super) struct Socket {
    /// Unix socket of the running balancer. Default: as the configuration file says.
    #[arg(long, env = "BUTLER_LB_SOCKET", value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct DrainArgs {
    /// Name of the backend.
    backend: String,
    /// In this listener only. Default: in all that have it.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// Give it connections again.
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    socket: Socket,
}

pub(super) fn reload(args: &Socket, config: &Path) -> Exit {
    told(ask(args, config, "POST", "/v1/reload"))
}

pub(super) fn drain(args: &DrainArgs, config: &Path) -> Exit {
    let names = args.listener.iter().chain([&args.backend]);
    for name in names {
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            output::error(&format!("{name:?} is not a name of a backend or listener"));
            return Exit::Usage;
        }
    }
    let listener = args.listener.as_ref().map(|name| format!("&listener={name}")).unwrap_or_default();
    let target = format!("/v1/drain?backend={}{listener}&undo={}", args.backend, args.undo);
    told(ask(&args.socket, config, "POST", &target))
}

/// Asks the running balancer.
pub(super) fn ask(args: &Socket, config: &Path, method: &str, target: &str) -> Result<Answer, ClientError> {
    request(&socket(args.socket.as_deref(), config), method, target)
}

/// Prints an answer that is messages or an error.
fn told(answer: Result<Answer, ClientError>) -> Exit {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return unreachable(&error),
    };
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    if answer.status == 200 {
        let messages = body["messages"].as_array().into_iter().flatten();
        messages.filter_map(Value::as_str).for_each(output::line);
        return Exit::Ok;
    }
    output::error(body["error"].as_str().unwrap_or(&answer.body));
    if answer.status == 422 { Exit::Usage } else { Exit::General }
}

/// Nobody answered.
pub(super) fn unreachable(error: &ClientError) -> Exit {
    output::error(&output::chain(error));
    Exit::Unreachable
}
