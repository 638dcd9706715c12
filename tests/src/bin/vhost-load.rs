//! A front-end that sends as fast as possible until it is killed: `vhost-load SOCKET`.

use std::path::Path;

use vhost_user::features::device::{PROTOCOL_FEATURES, VERSION_1};
use vhost_user::frontend::{Connection, DeviceConfig, FrontendError, NetDevice};

fn main() -> Result<(), FrontendError> {
    let socket = std::env::args().nth(1).unwrap_or_default();
    let config = DeviceConfig { features: VERSION_1 | PROTOCOL_FEATURES, ..DeviceConfig::default() };
    let mut device = NetDevice::start(Connection::dial(Path::new(&socket))?, config)?;
    let mut frame = vec![0x5a; 1514];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    loop {
        while device.send(0, &[0; 12], &frame)? {}
        while device.receive(0)?.is_some() {}
    }
}
