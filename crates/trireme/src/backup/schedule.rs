//! Backups at the times of a schedule.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rules::cron::Schedule;
use tokio_util::sync::CancellationToken;

use super::keeper::Origin;
use super::{Backup, Destination, Error, Keeper};
use crate::component::Failure;

/// The longest sleep at once: the clock may be set meanwhile.
const LOOK: Duration = Duration::from_secs(600);

/// Makes backups until told to end. One that fails is said, and the next one tried at its time.
pub async fn run(
    keeper: Arc<Keeper>,
    schedule: Schedule,
    keep: u16,
    to: Option<Destination>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let zone = TimeZone::system();
    let mut last = Timestamp::now();
    while let Some(due) = schedule.next(last, &zone) {
        tokio::select! {
            () = reached(due) => {}
            () = stop.cancelled() => return Ok(()),
        }
        match keeper.create(Origin::Schedule).await {
            Ok(backup) => {
                tracing::info!("backup {} of revision {}", backup.name, backup.revision);
                if let Some(to) = &to
                    && let Err(error) = hand_over(&keeper, &backup, to, keep).await
                {
                    tracing::error!("backup {} stays here: {error}", backup.name);
                }
            }
            Err(error) => tracing::error!("no backup: {error}"),
        }
        if let Err(error) = keeper.prune(keep.into()).await {
            tracing::warn!("old backups not removed: {error}");
        }
        last = Timestamp::now().max(due);
    }
    tracing::warn!("the schedule of backups names no further time");
    stop.cancelled().await;
    Ok(())
}

/// Moves a backup to a bucket, and removes the oldest there. Credentials are read each time: they may be others by now.
async fn hand_over(keeper: &Keeper, backup: &Backup, to: &Destination, keep: u16) -> Result<(), Error> {
    let remote = to.open()?;
    remote.take(&keeper.path(backup), &backup.name).await?;
    for name in remote.prune(keep.into()).await? {
        tracing::info!("removed backup {name} from {}", to.address);
    }
    Ok(())
}

async fn reached(due: Timestamp) {
    loop {
        let left = due.duration_since(Timestamp::now());
        let Ok(left) = Duration::try_from(left) else { return };
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}
