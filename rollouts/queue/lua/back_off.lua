-- Ends a claim after a failure, counts the failure and makes the key due after a delay.

local key, token, resend_ms, delay_ms = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ended = finish(key, token, resend_ms)
if ended ~= 'lost' then
    call('HINCRBY', failures, key, 1)
    delay(key, delay_ms)
end
return ended
