//! `mswitch mirror`.

use control::client::Client;
use control::proto;

use super::{answer, note};
use crate::cli::MirrorCommand;
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: MirrorCommand) -> Result<(), Failure> {
    match command {
        MirrorCommand::Add { bridge, name, from, direction, to, vlan } => {
            let (direction, vlan) = (direction.name().into(), vlan.unwrap_or_default());
            let mirror = proto::Mirror { bridge, name, from, direction, to, vlan, ..Default::default() };
            let request = proto::AddMirrorRequest { mirror: Some(mirror) };
            client.add_mirror(request).await?.into_inner().notes.iter().for_each(note);
            Ok(())
        }
        MirrorCommand::Del { bridge, name } => {
            client.delete_mirror(proto::DeleteMirrorRequest { bridge, name }).await?;
            Ok(())
        }
        MirrorCommand::List { bridge, output } => {
            let request = proto::ListMirrorsRequest { bridge: bridge.unwrap_or_default() };
            let mirrors = client.list_mirrors(request).await?.into_inner();
            answer(output, &mirrors, |mirrors| render::mirror::list(&mirrors.mirrors))
        }
    }
}
