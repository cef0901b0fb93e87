SELECT now_ms()
