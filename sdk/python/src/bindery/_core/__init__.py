"""What the sync and the async client share. Nothing here blocks, sleeps or opens a connection by itself."""
