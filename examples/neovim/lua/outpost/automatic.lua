-- Reviews that start by themselves, for those who asked for it: after a save, and after a commit made anywhere.
local M = {}

local QUIET_MS = 1500 -- many saves in a row are one review

local pending = {}
local watchers = {}

local function later(key, act)
  if pending[key] then
    pending[key]:stop()
  end
  pending[key] = vim.defer_fn(function()
    pending[key] = nil
    act()
  end, vim.g.outpost_quiet_ms or QUIET_MS)
end

-- The server of what was saved or committed, whatever buffer is shown by now.
local function review(client, argument)
  if client and not client:is_stopped() then
    require("outpost.client").command("review", argument, nil, client)
  end
end

-- The folder of the log of HEAD; git knows where it is in a linked worktree, where `.git` is a file.
local function log_folder(root, done)
  local question = { "git", "-C", root, "rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD" }
  pcall(vim.system, question, { text = true }, vim.schedule_wrap(function(answer)
    if answer.code == 0 then
      done(vim.fs.dirname(vim.trim(answer.stdout)))
    end
  end))
end

-- The system tells when the log of HEAD grows; nothing polls.
local function watch_commits(root)
  if not root or watchers[root] then
    return
  end
  log_folder(root, function(log)
    local watcher = not watchers[root] and vim.uv.fs_stat(log) and vim.uv.new_fs_event()
    if watcher and watcher:start(log, {}, vim.schedule_wrap(function(_, name)
      if name == "HEAD" and vim.g.outpost_review_on_commit then
        later("commit " .. root, function()
          local client = vim.iter(vim.lsp.get_clients({ name = "outpost" })):find(function(one)
            return one.root_dir == root
          end)
          review(client, { scope = "commit", revision = "HEAD", uri = vim.uri_from_fname(root) })
        end)
      end
    end)) then
      watchers[root] = watcher
    end
  end)
end

function M.watch()
  local group = vim.api.nvim_create_augroup("outpost-automatic", { clear = true })
  vim.api.nvim_create_autocmd("BufWritePost", {
    group = group,
    callback = function(event)
      local client = vim.g.outpost_review_on_save and vim.lsp.get_clients({ name = "outpost", bufnr = event.buf })[1]
      if client then
        local uri = vim.uri_from_bufnr(event.buf)
        later(uri, function() review(client, { scope = "file", uri = uri }) end)
      end
    end,
  })
  vim.api.nvim_create_autocmd("LspAttach", {
    group = group,
    callback = function(event)
      local client = vim.lsp.get_client_by_id(event.data.client_id)
      if client and client.name == "outpost" and vim.g.outpost_review_on_commit then
        watch_commits(client.root_dir)
      end
    end,
  })
  vim.api.nvim_create_autocmd("VimLeavePre", {
    group = group,
    callback = function()
      for _, watcher in pairs(watchers) do
        watcher:stop()
      end
    end,
  })
end

return M
