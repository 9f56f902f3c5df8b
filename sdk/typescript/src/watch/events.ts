// Events of a watch, and the messages of servers that they are made of.

import type { BinderyError } from '../errors/error.js';
import type { Removed, SnapshotBegin, SnapshotComplete } from '../gen/kubebind/v1alpha2/types_pb.js';

/** An event of a watch, told apart by `type`. */
export type WatchEvent<T> =
  | {
      /** The stream is open. If it resumed, changes follow, otherwise a snapshot. */
      readonly type: 'connected';
      /** Whether the stream goes on where the last one ended. */
      readonly resumed: boolean;
    }
  | {
      /** A snapshot begins. The objects of an unfinished snapshot before it exist, but objects that it lacks may exist too. */
      readonly type: 'snapshotBegin';
      /** Why the server refused to resume; absent if it was not asked to. */
      readonly refused?: string;
    }
  | {
      /** An object exists or has changed. A new UID under the same name means that the former object is gone. */
      readonly type: 'applied';
      /** The whole object. */
      readonly object: T;
      /** Whether the object is part of a snapshot, and not a change. */
      readonly inSnapshot: boolean;
    }
  | {
      /** An object is gone. */
      readonly type: 'removed';
      /** The object. */
      readonly removed: Removed;
    }
  | {
      /** The snapshot is complete, and its count agrees: objects that it lacks are gone. */
      readonly type: 'snapshotComplete';
    }
  | {
      /** The stream ended; the watch will open another one. */
      readonly type: 'disconnected';
      /** Why the stream ended; absent if the server ended it in good order. */
      readonly error?: BinderyError;
      /** Delay before the next attempt, in milliseconds. */
      readonly retryInMs: number;
    };

/** The event of a message, before its protocol is checked; `case` is undefined for one that this version does not know. */
export type RawEvent<T> =
  | { readonly case: 'snapshotBegin'; readonly value: SnapshotBegin }
  | { readonly case: 'applied'; readonly value: T }
  | { readonly case: 'removed'; readonly value: Removed }
  | { readonly case: 'snapshotComplete'; readonly value: SnapshotComplete }
  | { readonly case: 'heartbeat'; readonly value: unknown }
  | { readonly case: undefined; readonly value?: undefined };

/** A message of a watch method. */
export interface WatchMessage<T> {
  readonly event: RawEvent<T>;
  readonly resumeToken: string;
}
