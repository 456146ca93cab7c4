//! Whether anything answers at an address, by the same roads that lead to nodes: a port is reached, and left alone.

use std::time::Duration;

use tokio::time::timeout;

use super::{
    address::{NodeAddress, Settings},
    open::dial,
};

/// Whether a port takes a connection within `patience`, through the proxy of the settings if there is one.
///
/// A port that refuses does not count: a firewall or a proxy may speak for an address that nobody has.
pub async fn knock(address: &NodeAddress, patience: Duration, settings: &Settings) -> bool {
    matches!(timeout(patience, dial(address, settings)).await, Ok(Ok(_)))
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
        assert!(knock(&open, PATIENCE, &Settings::default()).await);
        drop(listener);
        assert!(!knock(&open, PATIENCE, &Settings::default()).await);
    }

    #[tokio::test]
    async fn a_proxy_is_asked_and_its_refusal_is_nobody() {
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", proxy.local_addr().unwrap());
        let settings = Settings { proxy: Some(url.parse().unwrap()), ..Settings::default() };
        let server = tokio::spawn(async move {
            for answer in ["200 OK", "502 Bad Gateway", "504 Gateway Timeout"] {
                let (mut stream, _) = proxy.accept().await.unwrap();
                let mut asked = [0; 256];
                let read = stream.read(&mut asked).await.unwrap();
                assert!(asked[..read].starts_with(b"CONNECT 10.40.0.200:6443 "));
                stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
            }
        });
        let address: NodeAddress = "10.40.0.200:6443".parse().unwrap();
        let mut heard = Vec::new();
        for _ in 0..3 {
            heard.push(knock(&address, PATIENCE, &settings).await);
        }
        assert_eq!(heard, [true, false, false]);
        server.await.unwrap();
    }
}
