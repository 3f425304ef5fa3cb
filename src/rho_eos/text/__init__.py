"""From prompts and chats to token ids, and from committed tokens to text."""
