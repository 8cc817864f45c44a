-- Makes a key due after a delay.

local key, delay_ms = ARGV[2], ARGV[3]
delay(key, delay_ms)
