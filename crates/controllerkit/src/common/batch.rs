//! Many writes at once, without storming an API that refuses them.

use std::future::Future;

use futures::future::join_all;

/// Calls a function `count` times: once, then twice at a time, then four times, as long as all succeed. Answers how many did, and the first error.
///
/// If the first pod exceeds a quota, the other 499 are not even tried.
pub async fn slow_start<E, F, W>(count: usize, mut call: F) -> (usize, Result<(), E>)
where
    F: FnMut(usize) -> W,
    W: Future<Output = Result<(), E>>,
{
    let (mut done, mut succeeded, mut size) = (0, 0, 1);
    while done < count {
        let batch = size.min(count - done);
        let answers = join_all((done..done + batch).map(&mut call)).await;
        done += batch;
        size *= 2;
        let mut failure = None;
        for answer in answers {
            match answer {
                Ok(()) => succeeded += 1,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return (succeeded, Err(error));
        }
    }
    (succeeded, Ok(()))
}

/// Calls a function for all items at once. Answers the first error after all are done.
pub async fn all<T, E, F, W>(items: impl IntoIterator<Item = T>, call: F) -> Result<(), E>
where
    F: FnMut(T) -> W,
    W: Future<Output = Result<(), E>>,
{
    join_all(items.into_iter().map(call)).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn batches_double_until_one_fails() {
        let calls = std::cell::Cell::new(0);
        let call = |number: usize| {
            calls.set(calls.get() + 1);
            async move { if number == 2 { Err("quota") } else { Ok(()) } }
        };
        assert_eq!(slow_start(100, call).await, (2, Err("quota")));
        assert_eq!(calls.get(), 3, "one, then two of which one failed, and no more");
        assert_eq!(slow_start(100, |_| async { Ok::<(), ()>(()) }).await, (100, Ok(())));
    }
}
