//! Whether anything answers at an address, by the same roads that lead to nodes: a port is reached, and left alone.

use std::time::Duration;

use tokio::time::timeout;

use super::{
    address::{NodeAddress, Settings},
    error::OpenError,
    open::dial,
};

/// What a port said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knocked {
    /// It takes connections.
    Open,
    /// It does not. One that refuses is no other than one that is silent: a firewall or a proxy may speak for an address that
    /// nobody has.
    Closed,
    /// The proxy did not look, and said this.
    Unseen(u16),
}

/// Whether a port takes a connection within `patience`, through the proxy of the settings if there is one.
pub async fn knock(address: &NodeAddress, patience: Duration, settings: &Settings) -> Knocked {
    match timeout(patience, dial(address, settings)).await {
        Ok(Ok(_)) => Knocked::Open,
        // 502 and 504 tell of a look that found nothing.
        Ok(Err(OpenError::Proxy { code, .. })) if !matches!(code, 502 | 504) => Knocked::Unseen(code),
        Ok(Err(_)) | Err(_) => Knocked::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn an_open_port_is_told_from_a_closed_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open: NodeAddress = listener.local_addr().unwrap().into();
        assert_eq!(knock(&open, PATIENCE, &Settings::default()).await, Knocked::Open);
        drop(listener);
        assert_eq!(knock(&open, PATIENCE, &Settings::default()).await, Knocked::Closed);
    }

    #[tokio::test]
    async fn a_proxy_that_found_nothing_is_told_from_one_that_did_not_look() {
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", proxy.local_addr().unwrap());
        let settings = Settings { proxy: Some(url.parse().unwrap()), ..Settings::default() };
        let server = tokio::spawn(async move {
            for answer in ["200 OK", "502 Bad Gateway", "504 Gateway Timeout", "403 Forbidden"] {
                let (mut stream, _) = proxy.accept().await.unwrap();
                let mut asked = [0; 256];
                let read = stream.read(&mut asked).await.unwrap();
                assert!(asked[..read].starts_with(b"CONNECT 10.40.0.200:6443 "));
                stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
            }
        });
        let address: NodeAddress = "10.40.0.200:6443".parse().unwrap();
        let mut heard = Vec::new();
        for _ in 0..4 {
            heard.push(knock(&address, PATIENCE, &settings).await);
        }
        assert_eq!(heard, [Knocked::Open, Knocked::Closed, Knocked::Closed, Knocked::Unseen(403)]);
        server.await.unwrap();
    }
}
