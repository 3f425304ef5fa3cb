"""An OpenAI-compatible HTTP server around the engine. Start reading at app.py."""
