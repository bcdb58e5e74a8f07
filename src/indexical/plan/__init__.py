"""Program → Plan: how a program is computed."""
